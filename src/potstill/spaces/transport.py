"""Wasserstein distances between distributions over actions, as a measure and as a loss.

W₁(p, q) is the least cost of moving the mass of p to that of q, where a unit of mass costs the distance it is moved.
On a line it is the area between the distribution functions: a cumulative sum. For other metrics it is a linear program,
whose dual is sup Σ (p - q)·g over functions g with g(a) - g(b) ≤ d(a, b) (the paper, appendix "Imitation learning with
Wasserstein distances").
"""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from potstill.errors import PotstillError
from potstill.spaces.contract import Float64

#: Entropic regularisation of Sinkhorn's algorithm, relative to the mean distance.
REGULARISATION = 0.05
#: Largest deviation of Sinkhorn's marginals, and the number of iterations at which it stops anyway.
_THRESHOLD, _ITERATIONS = 1e-3, 500


class Geometry(Protocol):
    """Distances between actions. Hashable, because compiled programs depend on it."""

    @property
    def diameter(self) -> float:
        """Largest distance between two actions."""

    def distance(self, p: Float64, q: Float64) -> Float64:
        """W₁ of each row, float64[N], for probabilities float64[N, K]."""

    def loss(self, p: Any, q: Any) -> Any:
        """A differentiable W₁ of each row, [N], in JAX; Sinkhorn's for a general metric."""

    def lipschitz(self, rewards: Float64) -> Float64:
        """Smallest L with |reward(a) - reward(b)| ≤ L·d(a, b) in each row, float64[N], for rewards float64[N, K]."""


class Line(msgspec.Struct, frozen=True):
    """Actions at positions on a line, in any order."""

    positions: tuple[float, ...]

    @property
    def diameter(self) -> float:
        """Distance between the outermost actions."""
        return max(self.positions) - min(self.positions)

    def distance(self, p: Float64, q: Float64) -> Float64:
        """The area between the distribution functions."""
        area: Float64 = np.abs(np.cumsum((p - q)[:, self._order], axis=1)[:, :-1]) @ self._gaps
        return area

    def loss(self, p: Any, q: Any) -> Any:
        """The same in JAX."""
        return jnp.abs(jnp.cumsum((p - q)[:, self._order], axis=1)[:, :-1]) @ jnp.asarray(self._gaps, jnp.float32)

    def lipschitz(self, rewards: Float64) -> Float64:
        """The steepest slope between neighbours."""
        slopes: Float64 = np.abs(np.diff(rewards[:, self._order], axis=1)) / self._gaps
        return slopes.max(axis=1)  # type: ignore[no-any-return]

    @property
    def _order(self) -> Any:
        return np.argsort(self.positions)

    @property
    def _gaps(self) -> Float64:
        return np.diff(np.array(self.positions)[self._order])


class Bins(msgspec.Struct, frozen=True):
    """Neighbouring bins on a line; mass is spread evenly within each."""

    edges: tuple[float, ...]

    @property
    def diameter(self) -> float:
        """Length of all bins."""
        return self.edges[-1] - self.edges[0]

    def distance(self, p: Float64, q: Float64) -> Float64:
        """The area between the distribution functions, which are linear within each bin."""
        return np.asarray(_area(np, p - q, np.diff(self.edges)))

    def loss(self, p: Any, q: Any) -> Any:
        """The same in JAX."""
        return _area(jnp, p - q, jnp.asarray(np.diff(self.edges), jnp.float32))

    def lipschitz(self, rewards: Float64) -> Float64:
        """The steepest slope between the middles of neighbouring bins."""
        middles = (np.array(self.edges[1:]) + np.array(self.edges[:-1])) / 2
        slopes: Float64 = np.abs(np.diff(rewards, axis=1)) / np.diff(middles)
        return slopes.max(axis=1)  # type: ignore[no-any-return]


class Metric(msgspec.Struct, frozen=True):
    """Any metric, as a matrix of distances."""

    distances: tuple[tuple[float, ...], ...]

    @property
    def matrix(self) -> Float64:
        """Distances, float64[K, K]."""
        return np.array(self.distances)

    @property
    def diameter(self) -> float:
        """The largest distance."""
        return float(self.matrix.max())

    def distance(self, p: Float64, q: Float64) -> Float64:
        """The value of the dual, exact."""
        return np.array([(one - other) @ dual(one, other, self.matrix) for one, other in zip(p, q, strict=True)])

    def loss(self, p: Any, q: Any) -> Any:
        """Sinkhorn's divergence less a constant: the regularised cost, without its preference for spread-out mass.

        It is smallest at q = p. Its values exceed W₁ by up to the regularisation times the entropy of the plan.
        """
        return jax.vmap(self._debiased)(p, q)

    def lipschitz(self, rewards: Float64) -> Float64:
        """The steepest slope between two actions."""
        gaps = np.abs(rewards[:, :, None] - rewards[:, None, :])
        slopes: Float64 = gaps / np.where(self.matrix > 0, self.matrix, np.inf)
        return slopes.max(axis=(1, 2))  # type: ignore[no-any-return]

    def _debiased(self, p: Any, q: Any) -> Any:
        return self._sinkhorn(p, q) - self._sinkhorn(q, q) / 2

    def _sinkhorn(self, p: Any, q: Any) -> Any:
        """The regularised cost. Its gradient is that of the envelope theorem: the dual potential."""
        Costs, LinearProblem, Sinkhorn = _sinkhorn_classes()
        costs = Costs(cost_matrix=jnp.asarray(self.matrix, jnp.float32), epsilon=REGULARISATION * self.matrix.mean())
        solver = Sinkhorn(threshold=_THRESHOLD, max_iterations=_ITERATIONS, use_danskin=True)
        return solver(LinearProblem(costs, a=p, b=q)).reg_ot_cost


def dual(p: Float64, q: Float64, distances: Float64) -> Float64:
    """Kantorovich's potential g of two distributions float64[K]: the solution of the dual, with g(first) = 0."""
    from scipy.optimize import linprog

    k = len(p)
    one, other = np.nonzero(~np.eye(k, dtype=bool))
    rows = np.arange(len(one))
    differences = np.zeros((len(one), k))
    differences[rows, one], differences[rows, other] = 1.0, -1.0
    free = [(0.0, 0.0), *[(None, None)] * (k - 1)]
    found = linprog(q - p, A_ub=differences, b_ub=distances[one, other], bounds=free, method="highs")
    if not found.success:
        raise PotstillError(f"the transport problem has no solution: {found.message}; are the distances a metric?")
    potential: Float64 = found.x
    return potential


def envelope_gradient(potential: Float64, scores: Float64) -> Float64:
    """The gradient of W₁(p, softmax(scores)) by the scores, float64[K]: minus that of E[g(A)] at the optimal g."""
    q = np.exp(scores - scores.max())
    q /= q.sum()
    gradient: Float64 = -q * (potential - q @ potential)
    return gradient


def policy_gradient(potential: Float64, scores: Float64, actions: Any) -> Float64:
    """The appendix's estimate of the same from actions A drawn from the softmax: the mean of -g(A)·∇ log π(A)."""
    q = np.exp(scores - scores.max())
    q /= q.sum()
    chosen = np.eye(len(q))[np.asarray(actions)]
    gradient: Float64 = -(potential[actions][:, None] * (chosen - q)).mean(axis=0)
    return gradient


def _sinkhorn_classes() -> tuple[Any, Any, Any]:
    """OTT-JAX's; imported here, because only general metrics need it."""
    try:
        with warnings.catch_warnings():  # it imports JAXopt, which warns that it is no longer maintained
            warnings.simplefilter("ignore", DeprecationWarning)
            from ott.geometry.geometry import Geometry
            from ott.problems.linear.linear_problem import LinearProblem
            from ott.solvers.linear.sinkhorn import Sinkhorn
    except ImportError as error:
        raise PotstillError(
            f"imitation by the distances of a general metric needs {error.name!r}: pip install 'potstill[transport]'"
        ) from error
    return Geometry, LinearProblem, Sinkhorn


def _area(xp: Any, difference: Any, widths: Any) -> Any:
    """∫ |F| of functions F that start at 0 and are linear within bins, with rises `difference` [N, bins]."""
    end = xp.cumsum(difference, axis=1)
    start = xp.concatenate([xp.zeros_like(end[:, :1]), end[:, :-1]], axis=1)
    total, crosses = xp.abs(start) + xp.abs(end), start * end < 0
    # Two triangles where F crosses zero, otherwise a trapezium.
    triangles = (start**2 + end**2) / xp.where(crosses, total, 1.0)
    return xp.where(crosses, triangles, total) @ widths / 2
