"""The columns of the lake's tables, typed from the problem."""

from __future__ import annotations

from typing import Literal, get_args

import polars as pl

from potstill.errors import PotstillError
from potstill.problem import Problem
from potstill.tables import TIME, context_schema

Table = Literal["decisions", "rewards", "observations"]
TABLES: tuple[Table, ...] = get_args(Table)
#: Tables are partitioned by the UTC day of `time`.
DAY = "day"
UTC_DAY = pl.col("time").dt.date().alias(DAY)
#: Outcomes by name, in the order of their names; null if there are none. A list, since names come and go.
METRICS = pl.List(pl.Struct({"name": pl.String(), "value": pl.Float64()}))

_DECISION: dict[str, pl.DataType] = {
    "id": pl.String(),
    "time": TIME,
    DAY: pl.Date(),
    "action": pl.String(),
    "propensity": pl.Float64(),
    "policy": pl.Int64(),
}
_COLUMNS: dict[Table, dict[str, pl.DataType]] = {
    "decisions": {
        **_DECISION,
        "eligible": pl.List(pl.String()),
        "floor": pl.Float64(),
        "unit": pl.String(),
        "mode": pl.String(),
        "arm": pl.String(),
        "problem": pl.String(),
    },
    "rewards": {
        "id": pl.String(),
        "time": TIME,
        DAY: pl.Date(),
        "reward": pl.Float64(),
        "key": pl.String(),
        "metrics": METRICS,
    },
    "observations": {
        **_DECISION,
        "reward": pl.Float64(),
        "rewarded": pl.Boolean(),
        "metrics": METRICS,
        "weight": pl.Float64(),
        "eligible": pl.List(pl.String()),
        "unit": pl.String(),
        "arm": pl.String(),
        "source": pl.String(),
        "cut": pl.Int64(),
        "problem": pl.String(),
    },
}


class SchemaMismatch(PotstillError, ValueError):
    """Columns do not fit those that a table has."""


def table_schema(table: Table, problem: Problem) -> pl.Schema:
    """The columns of a table; those of a context are called ``context_<feature>``, and all may be null."""
    contexts = {} if table == "rewards" else context_schema(problem)
    return pl.Schema({**_COLUMNS[table], **contexts})


def missing_columns(wanted: pl.Schema, present: pl.Schema, where: str) -> pl.Schema:
    """The columns that a table lacks; `SchemaMismatch` if one that it has is of another type."""
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
        f"column {name!r} is {dtype} here, and {where} has {same!r} as {present}; a feature keeps its name and type "
        f"for good: give the changed one a new name in the problem. Events that were logged in between stay on disk; "
        f"to take them in, move {where} to another place, and a new table is begun"
    )


def aligned(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """A frame with exactly the columns of a schema, in its order; those that it lacks are null."""
    return frame.select(
        pl.col(name) if name in frame.columns else pl.lit(None, dtype).alias(name) for name, dtype in schema.items()
    )


def with_day(frame: pl.DataFrame) -> pl.DataFrame:
    """A frame with the UTC day of its `time`."""
    return frame.with_columns(UTC_DAY)
