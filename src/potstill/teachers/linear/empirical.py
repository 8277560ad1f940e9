"""Empirical Linear-TS: Linear-TS whose prior and noise scales are learnt from the data."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from potstill.teachers.linear import nig
from potstill.teachers.linear.linear_ts import LinearState, LinearTS

#: Prior precisions to choose from, relative to the noise: from nearly flat to nearly constant rewards.
PRECISIONS = 4.0 ** np.arange(-4, 7)
#: Prior noise variances to choose from, as shares of the rewards' variance.
NOISES = (4.0 ** np.arange(0, -6, -1)).astype(np.float64)
#: Smallest variance of rewards, relative to their square: equal rewards leave only rounding errors.
_LEAST_VARIANCE = 1e-12


class EmpiricalLinearTS(LinearTS, frozen=True, kw_only=True, tag_field="type", tag="empirical-linear-ts"):
    """Linear-TS whose prior precision and noise scale maximise the marginal likelihood (empirical Bayes).

    The prior is centred on the mean reward, so that shifting or scaling all rewards changes no propensity. One
    precision and one noise scale serve all actions, chosen on a grid at each update. Sufficient statistics are those of
    `LinearTS`: shards add up, and propensities are exact given the chosen scales.

    Args:
        precision: Precision of the prior before any observation, and of an informative prior.
        alpha: Shape of the prior on the noise variance: half the number of observations that it counts for.
        beta: Scale of the prior on the noise variance before any observation.
    """

    alpha: float = 1.0
    beta: float = 1.0

    def _state(self, total: nig.Sums | nig.WeightedSums, prior: nig.Prior | tuple[()] = ()) -> LinearState:
        sums = total.normalised()
        if isinstance(prior, nig.Prior) or not sums.n.sum():
            return super()._state(total, prior)
        centred, mean, variance = standardised(sums)
        precision, noise = best_scales(centred, self.alpha)
        fitted = nig.posterior(centred, precision, self.alpha, self.alpha * noise)
        coefficients = fitted.mean * np.sqrt(variance)
        coefficients[:, -1] += mean
        return LinearState(total, fitted._replace(mean=coefficients, beta=fitted.beta * variance))


def standardised(sums: nig.Sums) -> tuple[nig.Sums, float, float]:
    """Statistics of rewards with mean 0 and variance 1, and the mean and variance of the rewards.

    The last regressor must be the constant 1: its column of the Gram matrix carries the shift.
    """
    of_constant, n = sums.moment[:, -1], float(sums.n.sum())
    mean = float(of_constant.sum()) / n
    variance = max(float(sums.square.sum()) / n - mean**2, _LEAST_VARIANCE * max(mean**2, 1.0))
    moment = (sums.moment - mean * sums.gram[:, :, -1]) / np.sqrt(variance)
    square = (sums.square - 2 * mean * of_constant + mean**2 * sums.n) / variance
    return nig.Sums(sums.gram, moment, np.maximum(square, 0.0), sums.n), mean, variance


def best_scales(sums: nig.Sums, alpha: float) -> tuple[float, float]:
    """The precision and the noise variance on the grid with the highest marginal likelihood."""
    found = [log_evidence(sums, precision, alpha, alpha * NOISES) for precision in PRECISIONS]
    row, column = np.unravel_index(int(np.argmax(found)), (len(PRECISIONS), len(NOISES)))
    return float(PRECISIONS[row]), float(NOISES[column])


def log_evidence(sums: nig.Sums, precision: float, alpha: float, betas: nig.Float64) -> nig.Float64:
    """Log marginal likelihood of all rewards under NIG(0, precision·I, alpha, beta), for each beta, float64[B]."""
    fitted = nig.posterior(sums, precision, alpha, 0.0)
    p = sums.gram.shape[-1]
    half_log_det = np.log(np.einsum("kpp->kp", fitted.root)).sum()
    constant = (gammaln(fitted.alpha) - gammaln(alpha) - sums.n / 2 * np.log(2 * np.pi)).sum()
    determinants = len(sums.n) * p / 2 * np.log(precision) - half_log_det
    scales = len(sums.n) * alpha * np.log(betas) - np.log(betas[:, None] + fitted.beta) @ fitted.alpha
    return np.asarray(constant + determinants + scales)
