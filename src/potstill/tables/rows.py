"""Rows of someone else's table: their values as observations have them, and which rows will do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from potstill.problem import Feature, Problem
from potstill.problem.observations import LARGEST
from potstill.tables.columns import TIME, TOLERANCE, Columns, Stated, context_column, context_schema

#: Columns of rows that were read, beside those of contexts; of rows that will not do, `WHY`.
ACTION, REWARD, PROPENSITY, MOMENT, FITS, WHY = "action", "reward", "propensity", "time", "fits", "why not"
#: The number of a row, under a name that no table has.
ROW = "number of the row"
#: Actions that a message lists at most.
_LISTED = 12


class Part(NamedTuple):
    """A column of observations.

    Attributes:
        value: its values.
        does: whether a row's value will do; null if it will not.
        must: what it must be, in words: one or two for all rows.
        got: what it is. Made only where it is needed: it is far slower than all the rest.
    """

    value: pl.Expr
    does: pl.Expr
    must: pl.Expr
    got: pl.Expr


class Reading:
    """How rows of a table are read.

    Args:
        parts: the columns to make.
        further: columns to keep as they are, under the names that `carried` gives them.
    """

    def __init__(self, parts: Sequence[Part], further: Sequence[str] = ()) -> None:
        self._values = [*(part.value for part in parts), *(pl.col(name).alias(carried(name)) for name in further)]
        fit = [part.does.fill_null(value=False) for part in parts]
        self._fits = pl.all_horizontal(*fit, pl.lit(value=True))
        nothing = pl.lit(None, pl.String)
        refusing = [(part, pl.when(~does)) for part, does in zip(parts, fit, strict=True)]
        self._must = pl.coalesce(*(unless.then(part.must) for part, unless in refusing), nothing)
        whys = (unless.then(pl.format("{}, got {}", part.must, part.got)) for part, unless in refusing)
        self._why = pl.coalesce(*whys, nothing)

    def rows(self, table: pl.LazyFrame) -> pl.LazyFrame:
        """All rows of a table that has their numbers: values, and whether they will do."""
        return table.select(ROW, *self._values, self._fits.alias(FITS))

    def unfit(self, table: pl.LazyFrame) -> pl.LazyFrame:
        """The numbers of rows that will not do, and why."""
        return table.filter(~self._fits).select(ROW, self._why.alias(WHY))

    def reasons(self, table: pl.LazyFrame) -> pl.LazyFrame:
        """What rows that will not do must be, and how many are not; a row counts once, for the first reason."""
        return table.filter(~self._fits).group_by(self._must.alias(WHY), maintain_order=True).len()


def reading(
    schema: pl.Schema, columns: Columns, problem: Problem, targets: Sequence[Stated], further: Sequence[str]
) -> Reading:
    """How to read observations, the policies that a table states, and further columns."""
    parts = [_action(problem, columns.action, ACTION), _reward(problem, columns.reward)]
    parts += [_propensity(columns.propensity)]
    parts += [_moment(columns.time, schema[columns.time])] if columns.time else []
    parts += feature_parts(problem, schema)
    for target in targets:
        parts += _stated(target, problem)
    read = {name for target in targets for name in target.columns}
    return Reading(parts, [name for name in further if name not in read])


def carried(name: str) -> str:
    """Where rows keep a column that is no part of observations."""
    return f"carried_{name}"


def feature_parts(problem: Problem, schema: pl.Schema) -> list[Part]:
    """The columns of a problem's features, called as they are."""
    types = context_schema(problem).values()
    return [_value(feature, schema[feature.name], to) for feature, to in zip(problem.context, types, strict=True)]


def _part(name: str, found: pl.Expr, label: str, value: pl.Expr, does: pl.Expr, must: str) -> Part:
    got = found.cast(pl.String).fill_null("nothing")
    return Part(value.alias(name), does, pl.lit(f"{label} must be {must}"), got)


def _action(problem: Problem, column: str, name: str) -> Part:
    value = pl.col(column).cast(pl.String)
    known = value.is_in(problem.actions.names)
    must = "an action" if len(problem.actions) > _LISTED else f"one of {', '.join(problem.actions.names)}"
    return _part(name, pl.col(column), column, value, known, must)


def _stated(target: Stated, problem: Problem) -> list[Part]:
    """The columns of a target; probabilities must add up as well, which the last of them says."""
    if not target.actions:
        return [_action(problem, target.name, carried(target.name))]
    values = [pl.col(name).cast(pl.Float64, strict=False) for name in target.columns]
    parts = [
        _part(carried(name), pl.col(name), name, value, value.is_between(0, 1), "a probability")
        for name, value in zip(target.columns, values, strict=True)
    ]
    total, last = pl.sum_horizontal(values), parts[-1]
    without = target.without(problem)
    none = f" (there is no column for {', '.join(without)})" if without else ""
    said = pl.lit(f"{', '.join(target.columns)} must add up to 1{none}")
    is_probability = pl.when(last.does.fill_null(value=False))
    must, got = is_probability.then(said).otherwise(last.must), is_probability.then(total.cast(pl.String))
    adds_up = (total - 1).abs() <= TOLERANCE
    return [*parts[:-1], Part(last.value, last.does & adds_up, must, got.otherwise(last.got))]


def _reward(problem: Problem, column: str) -> Part:
    value = pl.col(column).cast(pl.Float64, strict=False)
    stated = problem.reward
    low = -LARGEST if stated.low is None else stated.low
    high = LARGEST if stated.high is None else stated.high
    must = "a number" if stated.low is stated.high is None else f"a number from {low:g} to {high:g}"
    return _part(REWARD, pl.col(column), column, value, value.is_between(low, high), must)


def _propensity(column: str | float) -> Part:
    found = pl.lit(column) if isinstance(column, float) else pl.col(column)
    value = found.cast(pl.Float64, strict=False)
    does = (value > 0) & (value <= 1)
    return _part(PROPENSITY, found, str(column), value, does, "a probability above 0 and at most 1")


def _moment(column: str, dtype: pl.DataType) -> Part:
    if dtype == pl.String:
        value = pl.col(column).str.to_datetime(time_unit="us", time_zone="UTC", strict=False)
    elif dtype.is_numeric():
        value = pl.from_epoch(pl.col(column), "s").cast(TIME)
    elif getattr(dtype, "time_zone", None):
        value = pl.col(column).cast(TIME)
    else:
        value = pl.col(column).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    must = "a time, as ISO 8601 or seconds since 1970"
    return _part(MOMENT, pl.col(column), column, value, value.is_not_null(), must)


def _value(feature: Feature, dtype: pl.DataType, to: pl.DataType) -> Part:
    found = pl.col(feature.name)
    value = found.cast(to, strict=False)
    does = value.is_finite() if to == pl.Float64 else value.is_not_null()
    # NaN and the empty string are missing, as in all tables.
    blank = found.is_null()
    blank = blank | found.is_nan() if dtype.is_float() else blank
    blank = blank | (found == "") if dtype == pl.String else blank
    does = does & ~blank if feature.missing == "error" else does | blank
    tidied = pl.when(~blank).then(value)
    return _part(context_column(feature.name), found, feature.name, tidied, does, f"what feature {feature.name} takes")
