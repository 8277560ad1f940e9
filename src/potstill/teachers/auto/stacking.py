"""Stacking: convex weights of candidates that minimise the error of their weighted prediction (Breiman 1996).

Errors are of rewards that a candidate predicted before it learnt from them. Only their sums of products are kept.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

#: Number of observations that the mean squared error of all actions counts for in that of one action.
_POOLED = 10.0
#: Smallest mean squared error of an action, relative to that of all: predictions can be perfect.
_LEAST_NOISE = 1e-12
#: Added to the diagonal, relative to its mean, so that candidates with equal predictions share their weight.
_RIDGE = 1e-9


class Errors(NamedTuple):
    """Discounted sums over predictions, of C candidates on K actions.

    Attributes:
        products: Sums of products of the errors of two candidates, float64[K, C, C].
        n: Discounted number of predictions, float64[K].
    """

    products: Float64
    n: Float64

    @classmethod
    def none(cls, candidates: int, actions: int) -> Errors:
        """No prediction yet."""
        return cls(np.zeros((actions, candidates, candidates)), np.zeros(actions))

    @classmethod
    def of(cls, errors: Float64, actions: NDArray[np.int32], count: int) -> Errors:
        """Errors float64[C, N] on actions int32[N], of `count` actions."""
        rows = [np.flatnonzero(actions == a) for a in range(count)]
        products = np.stack([errors[:, taken] @ errors[:, taken].T for taken in rows])
        return cls(products, np.array([float(len(taken)) for taken in rows]))

    def __add__(self, other: Errors) -> Errors:  # type: ignore[override]
        return Errors(self.products + other.products, self.n + other.n)

    def faded(self, factor: float) -> Errors:
        """All sums times a factor."""
        return Errors(factor * self.products, factor * self.n)

    def weights(self, least: float) -> Float64:
        """The weight of each candidate, float64[C], 0 for those below `least`; equal before any prediction.

        Errors count relative to the noise of their action, so that an action with large rewards does not decide alone.
        """
        total = self._scaled()
        if not total.any():
            return np.full(len(total), 1 / len(total))
        weights = minimum_on_simplex(total)
        weights[weights < least] = 0.0
        return np.asarray(weights / weights.sum())

    def rmse(self) -> Float64:
        """The root of the mean squared error of each candidate, float64[C]; 0 before any prediction."""
        return np.asarray(np.sqrt(np.einsum("kcc->c", self.products) / max(float(self.n.sum()), 1.0)))

    def _scaled(self) -> Float64:
        """Sums of products of errors in units of each action's mean squared error over candidates, float64[C, C]."""
        squares, n = np.einsum("kcc->kc", self.products).mean(axis=1), np.maximum(self.n, 1e-9)
        overall = max(float(squares.sum() / n.sum()), np.finfo(np.float64).tiny)
        # In logs: the noise of one action may be a million times that of another.
        relative = np.log(np.maximum(squares / n / overall, _LEAST_NOISE))
        noise = overall * np.exp(self.n / (self.n + _POOLED) * relative)
        return np.asarray((self.products / noise[:, None, None]).sum(axis=0))


def minimum_on_simplex(products: Float64) -> Float64:
    """The weights float64[C], not negative and of sum 1, that minimise wᵀ·products·w.

    The minimum has some support. With the few candidates that there are, every support is tried: on the right one, the
    minimum without the constraint of signs is positive, and no other support with a positive one is lower.
    """
    c = len(products)
    ridged = products + _RIDGE * np.trace(products) / c * np.eye(c)
    tried = [_on_support(ridged, support) for size in range(1, c + 1) for support in combinations(range(c), size)]
    return min((w for w in tried if (w >= 0).all()), key=lambda w: float(w @ ridged @ w))


def _on_support(products: Float64, support: tuple[int, ...]) -> Float64:
    """The weights of sum 1 that minimise wᵀ·products·w among those that are 0 outside of a support."""
    found = np.linalg.solve(products[np.ix_(support, support)], np.ones(len(support)))
    weights = np.zeros(len(products))
    weights[list(support)] = found / found.sum()
    return weights
