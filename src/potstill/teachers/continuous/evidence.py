"""Prior scales by empirical Bayes: of the action, the context and their interaction, and the relevance of each column.

The regressors are (1, x) ⊗ B(a), with x centred, then functions of the context alone. The prior variance of the weight
of column k and function j, relative to the noise, is the scale of its kind times the relevance of the column times the
fall of the function. The scales maximise the marginal likelihood times a broad prior, by expectation conditional
maximisation: a step needs only the posterior, and no step lowers the objective.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from potstill.teachers.continuous.basis import falls
from potstill.teachers.linear import Float64, nig

#: Prior of the noise variance, in units of the variance of rewards. Weak, so that rewards without noise are learnt too.
_ALPHA, _BETA = 1.0, 0.1
#: Prior variance of the constant relative to the noise. Rewards are centred.
_CONSTANT = 10.0
#: Prior variance of all weights of a kind together before any observation, and how many weights that is worth.
_START, _WORTH = 10.0, 1.0
#: How many weights the prior of a column's relevance, which is 1, is worth.
_COLUMN_WORTH = 4.0
#: Steps at each update, from the scales of the previous update.
_STEPS = 8


class Scales(NamedTuple):
    """Prior variances relative to the noise.

    Attributes:
        kinds: Scales of weights of the action, of columns, of columns with the action, and of functions of the context,
            float64[4].
        relevance: Factor of each column, float64[d].
    """

    kinds: Float64
    relevance: Float64

    def variances(self, size: int, others: int) -> Float64:
        """Prior variances of all weights, float64[D], for `size` basis functions and `others` of the context alone."""
        of_action, of_column, of_both, of_others = self.kinds
        table = np.empty((len(self.relevance) + 1, size))
        table[0, 0] = _CONSTANT
        table[0, 1:] = of_action * falls(size)
        table[1:, 0] = of_column * self.relevance
        table[1:, 1:] = of_both * self.relevance[:, None] * falls(size)
        return np.append(table.ravel(), np.full(others, of_others))


def start(columns: int, others: int) -> Scales:
    """Scales before any observation."""
    counts = np.array([1, max(columns, 1), max(columns, 1), max(others, 1)])
    return Scales(_START / counts, np.ones(columns))


def learn(total: nig.Sums, size: int, before: Scales) -> Scales:
    """Scales given sufficient statistics of centred regressors and standardised rewards."""
    scales, others = before, total.gram.shape[1] - size * (len(before.relevance) + 1)
    for _ in range(_STEPS if total.n.sum() else 0):
        scales = _step(scales, _squares(posterior(total, scales.variances(size, others))), size)
    return scales


def posterior(total: nig.Sums, variances: Float64) -> nig.Posterior:
    """The posterior for given prior variances float64[D]."""
    prior = nig.Prior(np.zeros((1, len(variances))), 1 / variances[None])
    return nig.posterior(prior.added_to(total), 0.0, _ALPHA, _BETA)


def covariance(fitted: nig.Posterior) -> Float64:
    """Posterior covariance of the weights for a noise variance of 1, float64[D, D]."""
    inverse, _ = lapack.dpotri(fitted.root[0], lower=1)
    return np.asarray(np.tril(inverse) + np.tril(inverse, -1).T)


def _squares(fitted: nig.Posterior) -> Float64:
    """Posterior expectation of the squared weights relative to the noise, float64[D]."""
    squares: Float64 = fitted.mean[0] ** 2 * (fitted.alpha / fitted.beta) + np.diag(covariance(fitted))
    return squares


def _step(scales: Scales, squares: Float64, size: int) -> Scales:
    """The scales that maximise the expected objective given the relevance, then the relevance given these."""
    d, fall = len(scales.relevance), falls(size)
    table, others = squares[: (d + 1) * size].reshape(d + 1, size), squares[(d + 1) * size :]
    fair = table[1:] / scales.relevance[:, None]
    sums = np.array([(table[0, 1:] / fall).sum(), fair[:, 0].sum(), (fair[:, 1:] / fall).sum(), others.sum()])
    counts = np.array([size - 1, d, d * (size - 1), len(others)])
    kinds = (sums + _WORTH * start(d, len(others)).kinds) / (counts + _WORTH)
    of_column = table[1:, 0] / kinds[1] + (table[1:, 1:] / fall).sum(axis=1) / kinds[2]
    return Scales(kinds, (of_column + _COLUMN_WORTH) / (size + _COLUMN_WORTH))
