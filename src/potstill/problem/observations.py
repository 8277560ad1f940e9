"""Observations: the context, action, reward and propensity of decisions, as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from potstill.errors import InvalidObservation, shown
from potstill.lazy import tables_for
from potstill.problem.problem import Contexts, Problem
from potstill.problem.validate import check_outcomes, encode_actions, numbers
from potstill.spaces import Actions

_FIELDS = ("context", "action", "reward", "propensity")


@dataclass(frozen=True, eq=False)
class Observations:
    """N complete observations of one problem. Construction checks every row.

    Attributes:
        problem: The problem that was decided.
        contexts: Encoded contexts, float32[N, d].
        actions: Actions as the space encodes them, rows first; positions int32[N] for a list.
        rewards: Rewards, float64[N].
        propensities: Probability, or density, with which each action was taken, float32[N].
    """

    problem: Problem
    contexts: NDArray[np.float32]
    actions: Actions
    rewards: NDArray[np.float64]
    propensities: NDArray[np.float32]

    def __post_init__(self) -> None:
        count = len(self.contexts)
        for name in ("actions", "rewards", "propensities"):
            array = getattr(self, name)
            if len(array) != count or (name != "actions" and array.ndim != 1):
                raise InvalidObservation(f"{name} must have shape ({count},), as contexts has, got {array.shape}")
        check_outcomes(self.problem, self.actions, self.rewards, self.propensities)

    def __len__(self) -> int:
        return len(self.contexts)

    def __add__(self, other: Observations) -> Observations:
        """These observations followed by the others."""
        return Observations.joined(self.problem, [self, other])

    def __getitem__(self, rows: slice | NDArray[Any]) -> Observations:
        """Rows by slice, mask or positions."""
        return Observations(
            self.problem, self.contexts[rows], self.actions[rows], self.rewards[rows], self.propensities[rows]
        )

    @classmethod
    def from_columns(
        cls,
        problem: Problem,
        *,
        contexts: Contexts,
        actions: Sequence[Any] | Actions,
        rewards: ArrayLike,
        propensities: ArrayLike,
    ) -> Observations:
        """Observations from columns; actions as values, or in an array as the action space encodes them."""
        return cls(
            problem,
            problem.encode_many(contexts),
            encode_actions(problem.actions, actions),
            numbers("rewards", rewards, np.float64),
            numbers("propensities", propensities, np.float32),
        )

    @classmethod
    def from_records(cls, problem: Problem, records: Iterable[Mapping[str, Any]]) -> Observations:
        """Observations from mappings with the keys ``context``, ``action``, ``reward`` and ``propensity``."""
        rows = list(records)
        for i, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise InvalidObservation(
                    f"row {i}: a record must be a mapping with {', '.join(_FIELDS)}, got {shown(row)}"
                )
            for field in _FIELDS:
                if row.get(field) is None:
                    raise InvalidObservation(f"row {i}: {field!r} is missing; a record has {', '.join(_FIELDS)}")
            for field in ("reward", "propensity"):
                if isinstance(row[field], bool) or not isinstance(row[field], (int, float, np.number)):
                    raise InvalidObservation(f"row {i}: {field} must be a number, got {shown(row[field])}")
        return cls.from_columns(
            problem,
            contexts=[row["context"] for row in rows],
            actions=[row["action"] for row in rows],
            rewards=[row["reward"] for row in rows],
            propensities=[row["propensity"] for row in rows],
        )

    @classmethod
    def from_frame(
        cls,
        problem: Problem,
        frame: Any,
        *,
        action: str = "action",
        reward: str = "reward",
        propensity: str | float = "propensity",
        skip: bool = False,
    ) -> Observations:
        """The rows of a table as observations.

        Args:
            problem: The problem; columns are called as its features are.
            frame: A table in memory of Polars, pandas or Arrow, a relation of DuckDB, or the path of a file.
            action: Column of the action.
            reward: Column of the reward.
            propensity: Column of the probability, or density, of the action; a number if it was always the same.
            skip: Leave out rows that do not fit, instead of refusing the table.
        """
        tables = tables_for("Observations.from_frame")
        is_density = problem.actions.measure == "lebesgue"
        columns = tables.Columns(action=action, reward=reward, propensity=propensity, is_density=is_density)
        found: Observations = tables.observations_of(problem, frame, columns, skip=skip)
        return found

    @classmethod
    def joined(cls, problem: Problem, parts: Sequence[Observations]) -> Observations:
        """Several parts, all of the same problem, concatenated in order."""
        for part in parts:
            if part.problem.hash != problem.hash:
                raise InvalidObservation(
                    f"observations of {problem.name!r} and {part.problem.name!r} are of different problems"
                )
        if not parts:
            return cls.none(problem)
        return cls(
            problem,
            np.concatenate([part.contexts for part in parts]),
            np.concatenate([part.actions for part in parts]),
            np.concatenate([part.rewards for part in parts]),
            np.concatenate([part.propensities for part in parts]),
        )

    @classmethod
    def none(cls, problem: Problem) -> Observations:
        """An empty set of observations."""
        return cls.from_records(problem, [])
