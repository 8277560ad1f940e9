"""Policies that a table states in its own columns, to be compared off-policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from potstill.errors import InvalidLog
from potstill.problem import SUM_TOLERANCE, Problem
from potstill.spaces import finite
from potstill.tables.columns import listed
from potstill.tables.validate import ColumnRule, action_rule, probability_rule


@dataclass(frozen=True)
class PolicyColumns:
    """A policy in the columns of a table.

    Attributes:
        name: Column that names the action of each row, or the prefix of columns of probabilities.
        columns: Columns that the policy is read from: one, or one for each of `actions`.
        actions: Actions that have a column of probabilities; empty if one column names the action.
    """

    name: str
    columns: tuple[str, ...]
    actions: tuple[str, ...] = ()

    @classmethod
    def action(cls, column: str, present: Sequence[str]) -> PolicyColumns:
        """A column that names the action of each row."""
        if column not in present:
            raise InvalidLog(f"there is no column {column!r}; the columns are {listed(present)}")
        return cls(column, (column,))

    @classmethod
    def probabilities(cls, prefix: str, present: Sequence[str]) -> PolicyColumns:
        """Columns of probabilities, each called by a prefix and its action."""
        columns = tuple(name for name in present if name.startswith(prefix) and name != prefix)
        if len(columns) < 2:
            raise InvalidLog(
                f"there must be a column {prefix}ACTION for each action, with the probability that it would have had; "
                f"the columns are {listed(present)}"
            )
        return cls(prefix, columns, tuple(name.removeprefix(prefix) for name in columns))

    def without(self, problem: Problem) -> list[str]:
        """Actions without a column of probabilities, which the policy therefore never takes."""
        if not self.actions:
            return []
        labels = finite(problem.actions, "a policy in columns of a table").labels
        return [name for name in labels if name not in self.actions]

    def rules(self, problem: Problem) -> list[ColumnRule]:
        """Rules of its columns. Probabilities must also add up to 1, which the rule of the last column checks."""
        if not self.actions:
            return [action_rule(problem, self.name, carried(self.name))]
        rules = [probability_rule(column, carried(column)) for column in self.columns]
        return [*rules[:-1], self._with_total(rules[-1], problem)]

    def _with_total(self, last: ColumnRule, problem: Problem) -> ColumnRule:
        total = pl.sum_horizontal(pl.col(column).cast(pl.Float64, strict=False) for column in self.columns)
        without = self.without(problem)
        none = f" (there is no column for {', '.join(without)})" if without else ""
        adds_up = (total - 1).abs() <= SUM_TOLERANCE
        is_probability = pl.when(last.fits.fill_null(value=False))
        must = is_probability.then(pl.lit(f"{', '.join(self.columns)} must add up to 1{none}")).otherwise(last.must)
        found = is_probability.then(total.cast(pl.String)).otherwise(last.found)
        return ColumnRule(last.value, last.fits & adds_up, must, found)


def carried(column: str) -> str:
    """Name under which checked rows keep a column that is no part of observations."""
    return f"carried_{column}"
