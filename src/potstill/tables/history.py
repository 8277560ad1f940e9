"""A table of past decisions as a problem: what was decided, from which features, for what reward."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from potstill.errors import InvalidLog, shown
from potstill.problem import Continuous, Discrete, Problem, Reward, inferred_kind
from potstill.tables.columns import Columns
from potstill.tables.frames import table_of
from potstill.tables.infer import actions_in, number_in
from potstill.tables.scan import collected
from potstill.tables.survey import SurveyedColumn, survey

#: Numbers with more different values than this are amounts, not names of actions.
_MOST_LEVELS = 50
#: Columns that a message names.
_NAMED = 5


class History(NamedTuple):
    """A table of past decisions, and the problem that it is a history of.

    Attributes:
        place: Path or URL of the table, or what it is called if it is in memory.
        table: Its rows.
        columns: Which column is what.
        problem: The problem, inferred from the table.
        surveyed: What each column was taken for.
        rewards: Smallest, mean and largest reward.
        rows: Number of rows.
        title: What it was made of, for people; its place if left out.
    """

    place: str
    table: pl.LazyFrame
    columns: Columns
    problem: Problem
    surveyed: list[SurveyedColumn]
    rewards: tuple[float, float, float]
    rows: int
    title: str = ""

    @property
    def shown(self) -> str:
        """What to call it."""
        return self.title or self.place


def read_history(
    place: Any,
    columns: Columns,
    name: str,
    *,
    without: Collection[str] = (),
    actions: Sequence[str] | None = None,
    title: str = "",
) -> History:
    """Infer the problem of a table of past decisions.

    Args:
        place: Path or URL of the table, or a table in memory; see `table_of`.
        columns: Which column is what; see `survey` for `columns.context`.
        name: Name of the problem.
        without: Columns to leave out.
        actions: All actions that there were; those of the table if left out.
        title: What it was made of, for people; its place if left out.
    """
    table, place = table_of(place)
    called = title or place
    surveyed = survey(table, columns, called, without=without)
    features = [column.feature for column in surveyed if column.feature is not None]
    if not features:
        why = "; ".join(f"{column.name!r} {column.note}" for column in surveyed[:_NAMED])
        raise InvalidLog(f"{called}: no column is a feature{f': {why}' if why else ''}; name some with --context")
    reward, found, rows = _reward(table, columns.reward, called)
    space = _actions(table, columns, called) if actions is None else _named(actions, called)
    problem = Problem(name=name, context=features, actions=space, reward=reward)
    return History(place, table, columns, problem, surveyed, found, rows, title)


def _named(actions: Sequence[str], place: str) -> Discrete:
    if len(actions) < 2:
        raise InvalidLog(
            f"{place}: the only action is {', '.join(map(repr, actions))}; with one action there is nothing to compare"
        )
    return Discrete(actions)


def _actions(table: pl.LazyFrame, columns: Columns, place: str) -> Discrete | Continuous:
    dtype = table.collect_schema()[columns.action]
    if not columns.is_density and dtype.is_float():
        levels = collected(table.select(pl.col(columns.action).n_unique()), place).item()
        if levels > _MOST_LEVELS:
            return number_in(table, columns.action, (None, None), place)
    if columns.is_density:
        return number_in(table, columns.action, (None, None), place)
    return Discrete(actions_in(table, [columns.action], (), place))


def _reward(table: pl.LazyFrame, column: str, place: str) -> tuple[Reward, tuple[float, float, float], int]:
    """The reward, its smallest, mean and largest value, and the number of rows."""
    value = pl.col(column).cast(pl.Float64, strict=False)
    value = value.filter(value.is_finite())
    few = value.unique().head(3).implode().alias("values")
    found = table.select(value.min().alias("low"), value.mean().alias("mean"), value.max().alias("high"), few, pl.len())
    low, mean, high, values, rows = collected(found, place).row(0)
    if low is None:
        some = collected(table.select(pl.col(column).drop_nulls().head(1)), place).to_series()
        instead = f", but {shown(some[0])}" if len(some) else ""
        raise InvalidLog(f"{place}: column {column!r} holds no numbers{instead}; name the reward with --reward")
    if low == high:
        raise InvalidLog(f"{place}: column {column!r} is always {low:g}; with one reward there is nothing to learn")
    return Reward(kind=inferred_kind(np.array(values, np.float64))), (low, mean, high), rows
