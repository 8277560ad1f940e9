"""What was learnt from decisions: context, action, reward, and how probable the action was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from potstill.errors import InvalidAction, InvalidObservation, shown
from potstill.problem.problem import Contexts, Problem
from potstill.spaces import Actions

#: Sums of squares of rewards must stay within float64.
LARGEST = 1e100
_FIELDS = ("context", "action", "reward", "propensity")


@dataclass(frozen=True, eq=False)
class Observations:
    """N complete observations of one problem; rows are checked when the object is made.

    Attributes:
        problem: the problem they belong to.
        contexts: encoded contexts, float32[N, d].
        actions: as the action space encodes them, rows first; positions int32[N] for a list.
        rewards: float64[N].
        propensities: probability with which each action was taken, float32[N], in (0, 1].
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
        self._refuse(~np.isfinite(self.rewards), self.rewards, "reward", "a finite number")
        self._refuse(np.abs(self.rewards) > LARGEST, self.rewards, "reward", f"at most {LARGEST:g} in size; rescale it")
        self._refuse(self._out_of_bounds(), self.rewards, "reward", "within the bounds that the problem states")
        self._refuse(~self.problem.actions.valid(self.actions), self.actions, "action", "an action of the problem")
        if self.problem.actions.measure == "counting":
            probable = (self.propensities > 0) & (self.propensities <= 1)
            self._refuse(~probable, self.propensities, "propensity", "a probability above 0 and at most 1")
        else:
            dense = (self.propensities > 0) & np.isfinite(self.propensities)
            self._refuse(~dense, self.propensities, "propensity", "a density above 0")

    def _out_of_bounds(self) -> NDArray[np.bool_]:
        stated = self.problem.reward
        low = -np.inf if stated.low is None else stated.low
        high = np.inf if stated.high is None else stated.high
        return (self.rewards < low) | (self.rewards > high)

    def _refuse(self, bad: NDArray[np.bool_], values: NDArray[Any], what: str, expected: str) -> None:
        rows = np.flatnonzero(bad)
        if rows.size:
            others = f" (and {rows.size - 1} more rows: {rows[1:6].tolist()})" if rows.size > 1 else ""
            raise InvalidObservation(f"row {rows[0]}: {what} must be {expected}, got {values[rows[0]]}{others}")

    def __len__(self) -> int:
        return len(self.contexts)

    def __add__(self, other: Observations) -> Observations:
        """These observations, then the others."""
        return Observations.joined(self.problem, [self, other])

    def __getitem__(self, rows: slice | NDArray[Any]) -> Observations:
        """Some of the rows, by slice, mask or positions."""
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
            _encoded(problem, actions),
            np.asarray(rewards, np.float64),
            np.asarray(propensities, np.float32),
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
    def joined(cls, problem: Problem, parts: Sequence[Observations]) -> Observations:
        """Observations of one problem, one part after the other."""
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
        """No observations yet."""
        return cls.from_records(problem, [])


def _encoded(problem: Problem, actions: Sequence[Any] | Actions) -> Actions:
    if isinstance(actions, np.ndarray) and actions.dtype.kind in "iuf":
        return actions.astype(np.float32 if actions.dtype.kind == "f" else np.int32)
    try:
        return problem.actions.encode(list(actions))
    except InvalidAction as error:
        raise InvalidObservation(str(error)) from None
