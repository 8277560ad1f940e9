"""Empirical Bayes: prior scales of each block of features, and the prior correlation between actions.

The prior covariance of two rewards is a mixture Σ_bc w_bc · φ_b(x)ᵀφ_b(x')/s_b · C_c[a, a'], over blocks of features
and correlation patterns between actions. The weights and the noise maximise the marginal likelihood times a broad
log-normal prior, by L-BFGS with exact gradients.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve
from scipy.optimize import minimize

from potstill.teachers.linear import Float64

#: Correlation lengths between ordered actions, as shares of the action list.
_LENGTHS = (0.1, 0.3, 1.0)
#: Correlation patterns: all actions equal, neighbours correlated over each length, all independent.
PATTERNS = len(_LENGTHS) + 2
#: Standard deviation of the prior on the logarithm of each weight.
_SPREAD = 2.0
_NOISE = 0.3
_STEPS = 12
#: Mean squared length below which a block of features counts as absent, because its scale cannot be estimated.
_ABSENT = 1e-6
#: Bounds of the logarithms; rewards are standardised.
_BOUNDS = (-16.0, 4.0)


class Mix(NamedTuple):
    """Learnt prior scales, for standardised rewards.

    Attributes:
        logs: Logarithms of the weights, float64[blocks, PATTERNS].
        noise: Logarithm of the noise variance, float64[].
        scales: Mean squared length of each block's features, float64[blocks].
    """

    logs: Float64
    noise: Float64
    scales: Float64

    def covariances(self, k: int) -> Float64:
        """The prior covariance between the coefficients of k actions, for each block, float64[blocks, k, k]."""
        mixed: Float64 = np.tensordot(np.exp(self.logs), patterns(k), 1) / self.scales[:, None, None]
        return mixed


def patterns(k: int) -> Float64:
    """The correlation patterns between k actions, float64[PATTERNS, k, k]."""
    position = np.linspace(0, 1, k)
    distance = (position[:, None] - position) ** 2
    neighbours = [np.exp(-distance / (2 * length**2)) for length in _LENGTHS]
    return np.stack([np.ones((k, k)), *neighbours, np.eye(k)])


def start(blocks: int) -> Mix:
    """The mix before any observation: all blocks and patterns share the variance of the rewards equally."""
    weight = -np.log(blocks * PATTERNS)
    return Mix(np.full((blocks, PATTERNS), weight), np.log(np.array(_NOISE)), np.ones(blocks))


def learn(blocks: list[Float64], actions: NDArray[np.int32], targets: Float64, k: int, before: Mix) -> Mix:
    """The mix that maximises the posterior given N observations, warm-started from `before`.

    Args:
        blocks: Features of each block, float64[N, p_b].
        actions: Positions of actions, int32[N].
        targets: Standardised rewards, float64[N].
        k: Number of actions.
        before: Starting point of the search.
    """
    scales = np.array([max(float((x**2).sum(axis=1).mean()), _ABSENT) for x in blocks])
    correlations = patterns(k)[:, actions[:, None], actions]
    grams = [x @ x.T / scale for x, scale in zip(blocks, scales, strict=True)]
    components = np.stack([gram * pattern for gram in grams for pattern in correlations])
    centre = np.append(start(len(blocks)).logs, np.log(_NOISE))
    found = minimize(
        _objective,
        np.append(before.logs, before.noise),
        args=(components, targets, centre),
        jac=True,
        method="L-BFGS-B",
        bounds=[_BOUNDS] * len(centre),
        options={"maxiter": _STEPS},
    ).x
    return Mix(found[:-1].reshape(len(blocks), PATTERNS), np.array(found[-1]), scales)


def _objective(logs: Float64, components: Float64, targets: Float64, centre: Float64) -> tuple[float, Float64]:
    """Negative log posterior density of the logs, up to a constant, and its gradient."""
    weights, n = np.exp(logs), len(targets)
    covariance = np.tensordot(weights[:-1], components, 1)
    covariance[np.diag_indices(n)] += weights[-1]
    root = np.linalg.cholesky(covariance)
    inverse = cho_solve((root, True), np.eye(n))
    solved = inverse @ targets
    slope = np.outer(solved, solved) - inverse
    gradient = 0.5 * weights * np.append(np.tensordot(components, slope, 2), np.trace(slope))
    off = (logs - centre) / _SPREAD
    likelihood = -0.5 * targets @ solved - np.log(np.diag(root)).sum()
    return float(0.5 * off @ off - likelihood), off / _SPREAD - gradient
