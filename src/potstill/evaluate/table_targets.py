"""Policies that a table states row by row: the action that each would have taken, or its probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from potstill.evaluate.log import Block, InvalidLog
from potstill.problem import Problem


@dataclass(frozen=True)
class Stated:
    """A policy in the columns of a table.

    Attributes:
        name: of the column that names the action in each row; or what columns of probabilities begin with.
        columns: that it is read from: the one, or one for each of `actions`.
        actions: those of which there is a column of probabilities; empty if a column names the action.
    """

    name: str
    columns: tuple[str, ...]
    actions: tuple[str, ...] = ()

    @classmethod
    def action(cls, column: str, there: Sequence[str]) -> Stated:
        """By a column that names the action in each row."""
        if column not in there:
            raise InvalidLog(f"there is no column {column!r}; the columns are {', '.join(there)}")
        return cls(column, (column,))

    @classmethod
    def probabilities(cls, prefix: str, there: Sequence[str]) -> Stated:
        """By columns of probabilities, each called as a prefix and its action."""
        columns = tuple(name for name in there if name.startswith(prefix) and name != prefix)
        if len(columns) < 2:
            raise InvalidLog(
                f"there must be a column {prefix}ACTION for each action, with the probability that it would have had; "
                f"the columns are {', '.join(there)}"
            )
        return cls(prefix, columns, tuple(name.removeprefix(prefix) for name in columns))

    def without(self, problem: Problem) -> list[str]:
        """The actions that have no column of probabilities, and are therefore never taken."""
        return [name for name in problem.actions.names if self.actions and name not in self.actions]


class StatedTarget:
    """Such a policy as a target, on blocks that carry its columns among their groups."""

    def __init__(self, stated: Stated, problem: Problem) -> None:
        self.name = f"column {stated.name}" if not stated.actions else f"columns {stated.name}…"
        self._stated, self._actions = stated, problem.actions

    def probabilities(self, block: Block, first_row: int) -> NDArray[np.float64]:  # noqa: ARG002 - others name rows by it
        """As the columns say; rows in which they do not were refused when the table was read."""
        found: NDArray[np.float64] = np.zeros((len(block), len(self._actions)))
        for action, column in zip(self._stated.actions, self._stated.columns, strict=False):
            found[:, self._actions.index(action)] = block.groups[column]
        if self._stated.actions:
            found /= found.sum(axis=1, keepdims=True)
            return found
        named = [self._actions.index(name) for name in block.groups[self._stated.name].tolist()]
        found[np.arange(len(block)), named] = 1.0
        return found
