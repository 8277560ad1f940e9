"""Pairs of (context, action) points: inner products and squared distances for kernels, as arrays that broadcast."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

#: Squared distances below this share of the squared norms are rounding errors and become 0.
_ROUNDING = 1e-12


class Points(NamedTuple):
    """N points of a reward function: contexts float[N, d] and positions of actions int32[N]."""

    contexts: NDArray[Any]
    actions: NDArray[np.int32]

    def at(self, rows: slice | NDArray[np.int64]) -> Points:
        """A subset of the points, by slice or positions."""
        return Points(self.contexts[rows], self.actions[rows])


class Geometry(NamedTuple):
    """Inner products and squared distances of pairs of vectors.

    Attributes:
        inner: xᵀx'.
        squared: ‖x - x'‖².
    """

    inner: Float64
    squared: Float64


class Pairs(NamedTuple):
    """Pairs of points; the arrays broadcast to the shape of the pairs.

    Attributes:
        context: Geometry of the contexts.
        action: Geometry of the action features.
        same: Whether both actions are the same.
    """

    context: Geometry
    action: Geometry
    same: NDArray[np.bool_]


def between(left: Points, right: Points, features: Float64) -> Pairs:
    """Each of N points with each of M points: arrays [N, M]. `features` of the actions are float64[K, e]."""
    chosen = left.actions[:, None], right.actions[None, :]
    return Pairs(geometry(left.contexts, right.contexts), _action_geometry(features, chosen), chosen[0] == chosen[1])


def grid(contexts: NDArray[Any], points: Points, features: Float64, at: Float64 | None = None) -> Pairs:
    """Each of K actions in each of C contexts, with each of M points: arrays that broadcast to [C, K, M].

    The K actions are those of `features`, or have the features `at`, float64[K, e].
    """
    context = Geometry(*(part[:, None] for part in geometry(contexts, points.contexts)))
    if at is not None:
        action = Geometry(*(part[:, points.actions] for part in geometry(at, features)))
        return Pairs(context, action, action.squared == 0)
    chosen = np.arange(len(features))[:, None], points.actions[None, :]
    return Pairs(context, _action_geometry(features, chosen), chosen[0] == chosen[1])


def within(contexts: NDArray[Any], features: Float64) -> Pairs:
    """All pairs of K actions within each of C contexts: arrays that broadcast to [C, K, K]."""
    inner = (contexts.astype(np.float64) ** 2).sum(axis=1)[:, None, None]
    return Pairs(Geometry(inner, np.zeros((1, 1, 1))), geometry(features, features), np.eye(len(features), dtype=bool))


def selves(points: Points, features: Float64) -> Pairs:
    """Each point with itself: arrays [N]."""
    inner = (points.contexts.astype(np.float64) ** 2).sum(axis=1)
    action = _action_geometry(features, (points.actions, points.actions))
    return Pairs(Geometry(inner, np.zeros(len(inner))), action, np.ones(len(inner), bool))


def geometry(x: NDArray[Any], y: NDArray[Any]) -> Geometry:
    """Geometry of each row of x[N, d] with each row of y[M, d]: arrays [N, M]."""
    x, y = x.astype(np.float64), y.astype(np.float64)
    inner: Float64 = x @ y.T
    norms = (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1)
    squared = norms - 2 * inner
    # Equal rows must be at distance exactly 0: a Matérn-½ kernel takes the square root, which amplifies rounding.
    squared[squared < _ROUNDING * norms] = 0.0
    return Geometry(inner, squared)


def _action_geometry(features: Float64, chosen: tuple[NDArray[Any], NDArray[Any]]) -> Geometry:
    """Geometry of the features of actions, for positions that broadcast."""
    inner, squared = geometry(features, features)
    return Geometry(inner[chosen], squared[chosen])
