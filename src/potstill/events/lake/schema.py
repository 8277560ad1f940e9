"""Columns of the lake's tables: those of a decision from `DecisionRow`, actions and contexts from the problem."""

from __future__ import annotations

from typing import Literal, get_args

import polars as pl

from potstill.errors import PotstillError
from potstill.events.records import DECISION_COLUMNS, Column
from potstill.problem import Problem
from potstill.spaces import polars_type
from potstill.tables import TIME, context_schema

Table = Literal["decisions", "rewards", "observations"]
TABLES: tuple[Table, ...] = get_args(Table)
#: Tables are partitioned by the UTC day of `time`.
DAY = "day"
UTC_DAY = pl.col("time").dt.date().alias(DAY)
#: Metrics sorted by name; null if there are none. A list rather than columns, since names come and go.
METRICS = pl.List(pl.Struct({"name": pl.String(), "value": pl.Float64()}))

_REWARD: dict[str, pl.DataType] = {
    "id": pl.String(),
    "time": TIME,
    DAY: pl.Date(),
    "reward": pl.Float64(),
    "key": pl.String(),
    "metrics": METRICS,
}
#: What an observation says about rewards.
_OUTCOME: dict[str, pl.DataType] = {
    "reward": pl.Float64(),
    "rewarded": pl.Boolean(),
    "metrics": METRICS,
    "weight": pl.Float64(),
}
#: Fields of a decision that come before the outcome in the table of observations.
_LEADING = ("id", "time", "action", "propensity", "policy")


class SchemaMismatch(PotstillError, ValueError):
    """Columns conflict with those of a table."""


def table_schema(table: Table, problem: Problem) -> pl.Schema:
    """The columns of a table; those of a context are called ``context_<feature>``, and all may be null."""
    if table == "rewards":
        return pl.Schema(_REWARD)
    found = {name: _dtype(column, problem) for name, column in DECISION_COLUMNS.items()}
    leading = {name: found.pop(name) for name in _LEADING}
    begin = {"id": leading.pop("id"), "time": leading.pop("time"), DAY: pl.Date(), **leading}
    end = {"problem": pl.String(), **context_schema(problem)}
    if table == "decisions":
        return pl.Schema({**begin, **found, **end})
    observed = {name: dtype for name, dtype in found.items() if DECISION_COLUMNS[name].observed}
    return pl.Schema({**begin, **_OUTCOME, **observed, "source": pl.String(), "cut": pl.Int64(), **end})


def _dtype(column: Column, problem: Problem) -> pl.DataType:
    if column.type == "time":
        return TIME
    if column.type == "action" or column.type == "eligible":
        return polars_type(problem.actions.columns[column.type])
    return polars_type(column.type)


def missing_columns(wanted: pl.Schema, present: pl.Schema, where: str) -> pl.Schema:
    """The columns that a table lacks; `SchemaMismatch` if it has one of another type."""
    folded = {name.lower(): name for name in present}
    missing = {}
    for name, dtype in wanted.items():
        same = folded.get(name.lower())
        if same is None:
            missing[name] = dtype
        elif same != name or present[same] != dtype:
            raise SchemaMismatch(_mismatch(name, dtype, same, present[same], where))
    return pl.Schema(missing)


def _mismatch(name: str, dtype: pl.DataType, same: str, present: pl.DataType, where: str) -> str:
    return (
        f"column {name!r} is {dtype} here, and {where} has {same!r} as {present}; a feature's name keeps its type "
        f"for ever: give the changed feature a new name in the problem. Events logged in between stay on disk; "
        f"to import them, move {where} to another place, and a new table is created"
    )


def aligned(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """A frame with exactly the columns of a schema, in its order; those that it lacks are null."""
    return frame.select(
        pl.col(name) if name in frame.columns else pl.lit(None, dtype).alias(name) for name, dtype in schema.items()
    )


def with_day(frame: pl.DataFrame) -> pl.DataFrame:
    """A frame with the UTC day of its `time`."""
    return frame.with_columns(UTC_DAY)
