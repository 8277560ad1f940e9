"""Pairs of (context, action) points: all that a kernel needs to know of them, as arrays that broadcast."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

#: Squared distances below this share of the squared norms are rounding: the points are the same.
_ROUNDING = 1e-12


class Points(NamedTuple):
    """N points of a reward function: contexts float[N, d] and positions of actions int32[N]."""

    contexts: NDArray[Any]
    actions: NDArray[np.int32]

    def at(self, rows: slice | NDArray[np.int64]) -> Points:
        """Some of the points, by slice or positions."""
        return Points(self.contexts[rows], self.actions[rows])


class Geometry(NamedTuple):
    """How vectors lie to each other, pair by pair.

    Attributes:
        inner: xᵀx'.
        squared: ‖x - x'‖².
    """

    inner: Float64
    squared: Float64


class Pairs(NamedTuple):
    """Pairs of points; the arrays broadcast to the shape of the pairs.

    Attributes:
        context: Context of the contexts.
        action: Action of the actions' features.
        same: Whether both actions are one.
    """

    context: Geometry
    action: Geometry
    same: NDArray[np.bool_]


def between(left: Points, right: Points, features: Float64) -> Pairs:
    """Every point of N with every point of M: arrays [N, M]. `features` of the actions are float64[K, e]."""
    chosen = left.actions[:, None], right.actions[None, :]
    return Pairs(geometry(left.contexts, right.contexts), _taken(features, chosen), chosen[0] == chosen[1])


def grid(contexts: NDArray[Any], points: Points, features: Float64) -> Pairs:
    """Every action in every context of C, with every point of M: arrays that broadcast to [C, K, M]."""
    chosen = np.arange(len(features))[:, None], points.actions[None, :]
    inner, squared = geometry(contexts, points.contexts)
    return Pairs(Geometry(inner[:, None], squared[:, None]), _taken(features, chosen), chosen[0] == chosen[1])


def within(contexts: NDArray[Any], features: Float64) -> Pairs:
    """Every action with every other in the same context of C: arrays that broadcast to [C, K, K]."""
    inner = (contexts.astype(np.float64) ** 2).sum(axis=1)[:, None, None]
    return Pairs(Geometry(inner, np.zeros((1, 1, 1))), geometry(features, features), np.eye(len(features), dtype=bool))


def selves(points: Points, features: Float64) -> Pairs:
    """Every point with itself: arrays [N]."""
    inner = (points.contexts.astype(np.float64) ** 2).sum(axis=1)
    action = _taken(features, (points.actions, points.actions))
    return Pairs(Geometry(inner, np.zeros(len(inner))), action, np.ones(len(inner), bool))


def geometry(x: NDArray[Any], y: NDArray[Any]) -> Geometry:
    """Of every row of x[N, d] to every row of y[M, d]: arrays [N, M]."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    inner: Float64 = x @ y.T
    norms = (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1)
    squared = norms - 2 * inner
    # Equal rows must be at distance 0 exactly: a Matérn-½ kernel takes the root of what rounding would leave.
    squared[squared < _ROUNDING * norms] = 0.0
    return Geometry(inner, squared)


def _taken(features: Float64, chosen: tuple[NDArray[Any], NDArray[Any]]) -> Geometry:
    """The geometry of the features of actions, for positions that broadcast."""
    inner, squared = geometry(features, features)
    return Geometry(inner[chosen], squared[chosen])
