"""Shared by spaces with a finite list of actions: distributions are float32[N, K], actions are positions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potstill.errors import UnsupportedSpace, shown
from potstill.spaces.contract import Actions, Bool, FiniteSpace, Float32, Float64


def finite(space: object, who: str) -> FiniteSpace:
    """The space as a finite one; otherwise `UnsupportedSpace`, which names the caller that needs it."""
    if isinstance(space, FiniteSpace):
        return space
    raise UnsupportedSpace(f"{who} needs a finite list of actions, such as Discrete([...]), got {shown(space)}")


@dataclass(frozen=True, eq=False)
class FiniteDistribution:
    """Probabilities of K actions in N rows.

    Attributes:
        p: Probability of each action, float[N, K].
    """

    p: NDArray[Any]

    def draw(self, u: Float64) -> Actions:
        """Positions int64[N], by the inverse CDF in the order of the actions."""
        return choose(self.p, u[:, 0])

    def propensity(self, actions: Actions) -> Float64:
        """The probability of one action per row."""
        taken: Float64 = self.p[np.arange(len(self.p)), actions]
        return taken

    def drawn(self, u: Float64, actions: Actions, tolerance: float | Float64) -> Bool:
        """Whether u falls into the interval of each action, widened by the tolerance."""
        p = self.p.astype(np.float64)
        upper, rows = p.cumsum(axis=1), np.arange(len(p))
        place = u[:, 0] * upper[:, -1]
        above = upper[rows, actions] - p[rows, actions] - tolerance <= place
        within: Bool = above & (place <= upper[rows, actions] + tolerance)
        return within

    def nodes(self) -> Iterator[tuple[Actions, Float64]]:
        """Every action in every row, weighted by its probability."""
        for action in range(self.p.shape[1]):
            yield np.full(len(self.p), action, np.int32), self.p[:, action].astype(np.float64)


def choose(probabilities: Float32, u: Float64) -> NDArray[np.int64]:
    """The inverse CDF at u, in the order of the actions: int64[N].

    Sums are float64 and u is scaled by the total, so that float32 rounding favours no action.
    """
    cumulative = np.cumsum(probabilities, axis=1, dtype=np.float64)
    passed: NDArray[np.int64] = (cumulative <= u[:, None] * cumulative[:, -1:]).sum(axis=1)
    # u < 1, yet u·total may round up to the total: then it is the last possible action.
    last = probabilities.shape[1] - 1 - np.argmax(probabilities[:, ::-1] > 0, axis=1)
    chosen: NDArray[np.int64] = np.minimum(passed, last)
    return chosen


def mix_floor(p: NDArray[Any], eligible: Bool | None, floor: float) -> NDArray[Any]:
    """Mix probabilities with the uniform distribution over the m eligible actions: (1 - m·floor)·p + floor.

    No eligible action is then rarer than the floor.
    """
    if floor <= 0:
        return p
    allowed = np.ones_like(p, bool) if eligible is None else np.broadcast_to(eligible, p.shape)
    # Rounding may give a share below 0 where the floor is one over the number of actions.
    share = np.maximum(1 - allowed.sum(axis=-1, keepdims=True) * floor, 0).astype(p.dtype)
    mixed: NDArray[Any] = np.where(allowed, share * p + p.dtype.type(floor), p.dtype.type(0))
    return mixed


def check_floor(floor: object, actions: int) -> None:
    """Reject a floor that is not a number from 0 to one over the number of actions."""
    if isinstance(floor, bool) or not isinstance(floor, (int, float)) or not 0 <= floor <= 1 / actions:
        raise ValueError(f"floor must be a number from 0 to 1/{actions}, one over the number of actions, got {floor!r}")
