"""Linear-TS: a Bayesian linear regression for each action, in closed form."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular

from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers.best import probability_best
from potstill.teachers.contract import EXACT, Exactness, Float32

Float64 = NDArray[np.float64]


class LinearStats(NamedTuple):
    """Sums over observations, per action, with p = d + 1 columns (the last is the intercept's constant 1).

    Attributes:
        gram: XᵀX, float64[K, p, p].
        moment: Xᵀy, float64[K, p].
        square: yᵀy, float64[K].
        n: number of observations, float64[K].
    """

    gram: Float64
    moment: Float64
    square: Float64
    n: Float64

    def __add__(self, other: LinearStats) -> LinearStats:  # type: ignore[override]
        return LinearStats(*(a + b for a, b in zip(self, other, strict=True)))

    def scaled(self, factor: float) -> LinearStats:
        """All sums times a factor: the same observations with less weight."""
        return LinearStats(*(factor * a for a in self))


class LinearState(NamedTuple):
    """The statistics so far and the normal-inverse-gamma posterior NIG(mean, Λ, alpha, beta) that they give.

    Attributes:
        stats: sums over all observations.
        mean: float64[K, p].
        root: lower Cholesky factor of the precision Λ, float64[K, p, p].
        alpha: float64[K].
        beta: float64[K].
    """

    stats: LinearStats
    mean: Float64
    root: Float64
    alpha: Float64
    beta: Float64


class LinearTS(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="linear-ts"):
    """Reward = xᵀθ + noise for each action apart, with the conjugate prior NIG(0, precision·I, alpha, beta).

    The defaults are the paper's. Propensities are exact: given a context, the rewards of the actions are
    independent Student-t variables.

    Args:
        precision: of the prior on θ, relative to the noise; small is vague.
        alpha: shape of the prior on the noise variance.
        beta: scale of the prior on the noise variance.
        discount: weight of everything learnt before, at each update; below 1 forgets, for worlds that drift.
    """

    precision: float = 0.25
    alpha: float = 6.0
    beta: float = 6.0
    discount: float = 1.0

    def __post_init__(self) -> None:
        for field in ("precision", "alpha", "beta"):
            value = getattr(self, field)
            if not 0 < value < np.inf:
                raise ValueError(f"LinearTS: {field} must be a positive number, got {value!r}")
        if not 0 < self.discount <= 1:
            raise ValueError(f"LinearTS: discount must be above 0 and at most 1, got {self.discount!r}")

    @property
    def exactness(self) -> Exactness:
        """Exact, by quadrature."""
        return EXACT

    def init(self, problem: Problem) -> LinearState:
        """The prior."""
        return self._posterior(self.summarise(Observations.none(problem)))

    def update(self, state: LinearState, observations: Observations, key: Key) -> LinearState:  # noqa: ARG002
        """The posterior after more observations."""
        return self.absorb(state, self.summarise(observations))

    def summarise(self, observations: Observations) -> LinearStats:
        """Sums over some observations."""
        actions, width = len(observations.problem.actions), observations.problem.width + 1
        gram, moment, square = np.zeros((actions, width, width)), np.zeros((actions, width)), np.zeros(actions)
        n = np.bincount(observations.actions, minlength=actions).astype(np.float64)
        for a in np.flatnonzero(n):
            rows = observations.actions == a
            x, y = _with_intercept(observations.contexts[rows]), observations.rewards[rows]
            gram[a], moment[a], square[a] = x.T @ x, x.T @ y, y @ y
        return LinearStats(gram, moment, square, n)

    def absorb(self, state: LinearState, stats: LinearStats) -> LinearState:
        """The posterior after the observations behind `stats`."""
        return self._posterior(state.stats.scaled(self.discount) + stats)

    def propensities(self, state: LinearState, contexts: Float32, key: Key) -> Float32:  # noqa: ARG002
        """The probability that each action is best, float32[N, K]."""
        return probability_best(*self._marginals(state, contexts))

    def sample_actions(self, state: LinearState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """Thompson sampling's own actions, int64[N, n]."""
        location, scale, dof = self._marginals(state, contexts)
        rng = key.generator()
        draws = rng.standard_t(dof, size=(n, *location.shape))
        best: NDArray[np.int64] = (location + scale * draws).argmax(axis=-1).T
        return best

    def _posterior(self, stats: LinearStats) -> LinearState:
        precision = stats.gram + self.precision * np.eye(stats.gram.shape[-1])
        root: Float64 = np.linalg.cholesky(precision)
        mean = np.stack([cho_solve((L, True), m) for L, m in zip(root, stats.moment, strict=True)])
        # The residual sum of squares is never negative; rounding would make it so when rewards are huge and alike.
        residual = np.maximum(stats.square - np.einsum("kp,kp->k", mean, stats.moment), 0.0)
        return LinearState(stats, mean, root, self.alpha + stats.n / 2, self.beta + residual / 2)

    def _marginals(self, state: LinearState, contexts: Float32) -> tuple[Float64, Float64, Float64]:
        """Location and scale, float64[N, K], and degrees of freedom, float64[K], of each action's mean reward."""
        x = _with_intercept(contexts)
        location = x @ state.mean.T
        spread = np.stack([(solve_triangular(L, x.T, lower=True) ** 2).sum(axis=0) for L in state.root], axis=1)
        return location, np.sqrt(spread * state.beta / state.alpha), 2 * state.alpha


def _with_intercept(contexts: Float32) -> Float64:
    return np.concatenate([contexts.astype(np.float64), np.ones((len(contexts), 1))], axis=1)
