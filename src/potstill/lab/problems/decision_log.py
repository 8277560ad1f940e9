"""A user's log of decisions, for replay by rejection where decisions were not uniformly random.

A logged row is kept with probability least / propensity, where least is the smallest propensity of the log. Then every
action of every context is among the kept rows equally often, as in a log of uniformly random decisions, which
`potstill.lab.problems.replay` replays. A row therefore counts with probability `least` under any algorithm. This holds
if every action was possible in every context with a propensity of at least `least`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import polars as pl

from potstill.errors import LabError
from potstill.keys import Key
from potstill.lab.problems.environment import Float64
from potstill.lab.problems.table import read_table
from potstill.problem import Discrete, Observations, Problem, Reward
from potstill.spaces import finite, lake_columns
from potstill.tables import (
    FITS,
    NAMED,
    ROW,
    RowRules,
    action_rule,
    checked_contexts,
    features_of,
    natural,
    propensity_rule,
    refusal,
    reward_rule,
)

#: Rows of a part of the log.
CHUNK = 100_000
#: More different values than this are hardly actions.
MOST_ACTIONS = 1_000
#: Standard errors by which the inverse propensities of an action may differ from their expectation. For normal means,
#: fewer than 1 of 500 million actions differ so much by chance.
FAR = 6.0
#: Smallest relative difference that is an error; propensities are often rounded.
ROUNDED = 0.05


class DecisionLog:
    """A table of logged decisions.

    Args:
        table: The rows.
        action: Column of the action.
        reward: Column of the reward.
        propensity: Column of the probability with which the action was taken; None for uniformly random decisions.
        without: Columns to leave out of the context; all but these are features.
        name: Name of the problem.
        place: Name of the table in messages.

    Attributes:
        problem: The problem.
        rows: Number of rows.
        least: Smallest propensity.
    """

    def __init__(
        self,
        table: pl.DataFrame,
        *,
        action: str,
        reward: str,
        propensity: str | None = None,
        without: Collection[str] = (),
        name: str = "log",
        place: str = "the log",
    ) -> None:
        named = [name for name in (action, reward, propensity) if name is not None]
        _check_columns(table, named, place)
        context = table.drop([column for column in named if column != action])
        self.problem = Problem(
            name=name,
            context=features_of(context, None, target=action, without=without),
            actions=Discrete(_names(table[action], place)),
            reward=_range(table[reward], place),
        )
        self._labels = finite(self.problem.actions, "replay").labels
        checked = _checked(table, self.problem, action, reward, propensity or 1 / len(self._labels), place)
        self.rows = len(table)
        self._propensities: Float64 = checked["propensity"].to_numpy().astype(np.float64)
        self.least = float(self._propensities.min())
        self._observations = Observations.from_columns(
            self.problem,
            contexts=checked_contexts(table.lazy(), self.problem, place),
            actions=lake_columns(self.problem.actions).actions(checked["action"]),
            rewards=checked["reward"].to_numpy(),
            propensities=self._propensities,
        )
        self._refuse_implausible(table[action].cast(pl.String), propensity, place)

    @classmethod
    def from_file(
        cls, path: Path, *, action: str, reward: str, propensity: str | None, without: Collection[str], name: str
    ) -> DecisionLog:
        """The log of a CSV or Parquet file."""
        return cls(
            read_table(path),
            action=action,
            reward=reward,
            propensity=propensity,
            without=without,
            name=name,
            place=str(path),
        )

    @property
    def most_decisions(self) -> int:
        """Decisions that a trial can count on: four standard deviations below the expected number, 1 or more."""
        expected = self.rows * self.least
        return max(int(expected - 4 * math.sqrt(expected * (1 - self.least))), 1)

    def check_decisions(self, n: int, name: str) -> None:
        """Refuse more decisions than the log can give."""
        if n > self.rows * self.least:
            raise LabError(
                f"{name}: {n:,} decisions take about {math.ceil(n / self.least):,} logged rows, and the log has "
                f"{self.rows:,}, each of which counts with probability {self.least:.3g}, the smallest propensity; ask "
                f"for {self.most_decisions:,} or fewer"
            )

    def parts(self, key: Key) -> Iterator[Observations]:
        """The rows that are kept, as if decisions had been uniformly random, in an order given by the key."""
        kept = key.child("keep").generator().random(self.rows) * self._propensities < self.least
        order = key.child("rows").generator().permutation(np.flatnonzero(kept))
        for start in range(0, len(order), CHUNK):
            yield self._observations[order[start : start + CHUNK]]

    def _refuse_implausible(self, names: pl.Series, propensity: str | None, place: str) -> None:
        """Reject propensities that are not those of the actions: 1 / propensity, summed over an action, is about N."""
        for action in self._labels:
            weights = np.where((names == action).to_numpy(), 1 / self._propensities, 0.0)
            off, error = abs(float(weights.mean()) - 1), float(weights.std()) / math.sqrt(self.rows)
            if off > max(FAR * error, ROUNDED):
                raise LabError(f"{place}: {_implausible(action, weights, propensity, len(self._labels))}")


def _implausible(action: str, weights: Float64, propensity: str | None, count: int) -> str:
    if propensity is None:
        return (
            f"action {action!r} is {100 * float((weights > 0).mean()):.1f} % of the rows, and {100 / count:.1f} % of "
            "uniformly random decisions; name the column of their probabilities with --propensity"
        )
    return (
        f"column {propensity!r} does not hold the probabilities of the logged actions: 1 / propensity of action "
        f"{action!r} adds up to {weights.sum():,.0f}, and should to about {len(weights):,}, the number of rows"
    )


def _check_columns(table: pl.DataFrame, named: list[str], place: str) -> None:
    for name in named:
        if name not in table.columns:
            raise LabError(f"{place}: there is no column {name!r}; the columns are {', '.join(table.columns)}")
    if twice := [name for name in named if named.count(name) > 1]:
        raise LabError(f"{place}: column {twice[0]!r} is named twice; action, reward and propensity are different")
    if table.is_empty():
        raise LabError(f"{place}: it has no rows")


def _names(column: pl.Series, place: str) -> list[str]:
    names = sorted(column.cast(pl.String).drop_nulls().unique().to_list(), key=natural)
    if not 2 <= len(names) <= MOST_ACTIONS:
        raise LabError(
            f"{place}: column {column.name!r} names {len(names):,} actions; replay needs 2 to {MOST_ACTIONS:,}"
        )
    return names


def _range(column: pl.Series, place: str) -> Reward:
    numbers = column.cast(pl.Float64, strict=False)
    known = numbers.filter(numbers.is_finite())
    if known.is_empty():
        raise LabError(f"{place}: column {column.name!r} holds no rewards; they must be numbers")
    low, high = float(known.to_numpy().min()), float(known.to_numpy().max())
    if low == high:
        raise LabError(f"{place}: every reward in column {column.name!r} is {low:g}; there is nothing to learn")
    return Reward(low=low, high=high)


def _checked(
    table: pl.DataFrame, problem: Problem, action: str, reward: str, propensity: str | float, place: str
) -> pl.DataFrame:
    """Columns `action`, `reward` and `propensity`, all of whose rows fit."""
    rules = RowRules([action_rule(problem, action), reward_rule(problem, reward), propensity_rule(problem, propensity)])
    rows = table.lazy().with_row_index(ROW)
    found = rules.rows(rows).collect()
    if count := len(found) - int(found[FITS].sum()):
        unfit = rules.unfit(rows).head(NAMED).collect().rows()
        raise LabError(f"{refusal(place, unfit, count)} Correct these rows, or remove them from the log")
    return found
