"""The wheel: rare contexts hide a large reward, so that finding it takes exploration (Riquelme, Tucker, Snoek 2018)."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import LabError
from potstill.lab.problems.environment import Columns, Float32, Float64
from potstill.problem import Discrete, Numeric, Problem

_SAFE, _PLAIN, _JACKPOT = 1.2, 1.0, 50.0

_ACTIONS = ("safe", "right-up", "right-down", "left-up", "left-down")
_PROBLEM = Problem(
    name="wheel",
    context=(Numeric("x", low=-1, high=1), Numeric("y", low=-1, high=1)),
    actions=Discrete(_ACTIONS),
)


class Wheel(msgspec.Struct, frozen=True):
    """Points (x, y) uniform in the unit disc, and five actions, as in the paper.

    ``safe`` earns 1.2 everywhere and each other action 1.0, except on the rim, further than `delta` from the centre:
    there the action named after the point's quadrant earns 50. A share of 1 - delta² of the points is on the rim.

    Args:
        delta: Inner radius of the rim, from 0 to below 1.
        noise: Standard deviation of the rewards.
    """

    delta: float = 0.95
    noise: float = 0.01

    def __post_init__(self) -> None:
        if not 0 <= self.delta < 1:
            raise LabError(f"Wheel: delta must be from 0 to below 1, got {self.delta!r}")
        if not 0 <= self.noise < np.inf:
            raise LabError(f"Wheel: noise must be 0 or more, got {self.noise!r}")

    @property
    def problem(self) -> Problem:
        """The problem: two numeric features, five actions."""
        return _PROBLEM

    def contexts(self, n: int, rng: np.random.Generator) -> Columns:
        """Points, uniform in the disc, as columns x and y."""
        # The square root makes rings of equal area equally likely.
        radius, angle = np.sqrt(rng.random(n)), 2 * np.pi * rng.random(n)
        return {"x": radius * np.cos(angle), "y": radius * np.sin(angle)}

    def encode(self, contexts: Columns) -> Float32:
        """Contexts as the problem encodes them, float32[N, 2]."""
        return _PROBLEM.encode_many(contexts)

    def means(self, contexts: Columns) -> Float64:
        """The expected reward of each action, float64[N, 5]."""
        x, y = contexts["x"], contexts["y"]
        means = np.full((len(x), len(_ACTIONS)), _PLAIN)
        means[:, 0] = _SAFE
        rim = np.flatnonzero(np.hypot(x, y) > self.delta)
        means[rim, _quadrant(x[rim], y[rim])] = _JACKPOT
        return means

    def rewards(self, contexts: Columns, actions: NDArray[np.integer[Any]], rng: np.random.Generator) -> Float64:
        """The means of the actions taken, with Gaussian noise, float64[N]."""
        taken: Float64 = self.means(contexts)[np.arange(len(actions)), actions]
        return taken + self.noise * rng.standard_normal(len(actions))


def _quadrant(x: Float64, y: Float64) -> NDArray[np.int64]:
    """The position of the action for each point's quadrant."""
    return np.where(x > 0, np.where(y > 0, 1, 2), np.where(y > 0, 3, 4))
