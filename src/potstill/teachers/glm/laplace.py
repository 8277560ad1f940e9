"""Laplace approximation of generalised linear models per action, with a prior precision learnt from the data.

The coefficients θ of each action have the prior N(centre, I/λ), where the centre is the link of the pooled mean reward
for the intercept, and 0 otherwise. λ is shared by all actions. Newton's method finds the mode. Each of its steps reads
all observations once and reduces them to an `Expansion`, the second-order expansion of the log likelihood at the
current coefficients: expansions of parts add up, so that observations may be anywhere. The posterior is
N(mode, (H + λI)⁻¹) with H the negative Hessian of the log likelihood.

λ maximises the evidence of the expansion on a grid. It is chosen again at each of the first steps. At the mode this
is the Laplace evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.teachers.glm.family import Family, within_reach
from potstill.teachers.linear import Float64, Sums, nig
from potstill.teachers.memory import Memory

#: Prior precisions to choose from, in units of the linear predictor: standard deviations from 8 to 1/64.
PRECISIONS = (4.0 ** np.arange(-3, 7)).astype(np.float64)
#: Most evaluations of the expansion: 5 to 8 are usual.
EVALUATIONS = 30
#: Steps at which the precision is chosen. Later it is held, so that two precisions cannot alternate.
_CHOICES = 6
#: A step is the last one if it is shorter than this, squared, in posterior standard deviations.
_SHORT = 1e-6
#: Smallest curvature of an observation, where its weight in the regression is rounding error.
_LEAST_CURVATURE = 1e-100
#: Rows per evaluation: regressors in float64 take 25 MB with 50 columns.
_ROWS = 65_536
#: Rows times regressors times actions of the products behind squared norms: 64 MB.
_PRODUCTS = 8_000_000


class Expansion(NamedTuple):
    """Second-order expansion of the log likelihood per action at some coefficients.

    The sum of two covers both sets of observations.

    Attributes:
        log_likelihood: Log likelihood, up to a constant of the rewards, float64[K].
        gradient: Its gradient, float64[K, p].
        hessian: Its negative Hessian, float64[K, p, p].
    """

    log_likelihood: Float64
    gradient: Float64
    hessian: Float64

    def __add__(self, other: Expansion) -> Expansion:  # type: ignore[override]
        return Expansion(*(a + b for a, b in zip(self, other, strict=True)))

    def scaled(self, factor: float) -> Expansion:
        """The same observations with their weights scaled."""
        return Expansion(*(factor * a for a in self))


#: The expansion of all observations at coefficients float64[K, p].
Expand = Callable[[Float64], Expansion]


class LaplacePosterior(NamedTuple):
    """A normal posterior of the coefficients of each action.

    Attributes:
        mean: Mode, float64[K, p].
        factor: F with FFᵀ the covariance, float64[K, p, p].
        precision: Prior precision λ, float64[].
    """

    mean: Float64
    factor: Float64
    precision: Float64


class Predictors(NamedTuple):
    """Linear predictors of each action in each context: independent normal variables.

    Attributes:
        mean: Means, float64[N, K].
        scale: Standard deviations, float64[N, K].
    """

    mean: Float64
    scale: Float64


def expand(regressors: Float64, data: Memory, family: Family, coefficients: Float64) -> Expansion:
    """The expansion of some observations, with regressors float64[N, p] in place of their contexts."""
    of_action = coefficients[data.actions]
    predictor = within_reach(np.einsum("np,np->n", regressors, of_action))
    mean = family.mean(predictor)
    curvature = np.maximum(family.curvature(mean), _LEAST_CURVATURE)
    # The gradient and the Hessian are the sums of a weighted linear regression on the working residual.
    working = nig.sums(
        regressors, data.actions, (data.rewards - mean) / curvature, data.weights * curvature, len(coefficients)
    )
    likelihoods = data.weights * (data.rewards * predictor - family.log_normaliser(predictor))
    total = np.bincount(data.actions, likelihoods, minlength=len(coefficients))
    return Expansion(total.astype(np.float64), working.moment, working.gram)


def expand_in_chunks(
    regressors: Callable[[Memory], Float64], data: Memory, family: Family, coefficients: Float64
) -> Expansion:
    """The same, with the regressors of some rows at a time."""
    k, p = coefficients.shape
    total = Expansion(np.zeros(k), np.zeros((k, p)), np.zeros((k, p, p)))
    for first in range(0, len(data.actions), _ROWS):
        rows = data.rows(slice(first, first + _ROWS))
        total += expand(regressors(rows), rows, family, coefficients)
    return total


def prior(k: int, p: int, precision: float) -> LaplacePosterior:
    """The posterior without observations: all coefficients have mean 0."""
    factor = np.broadcast_to(np.eye(p) / np.sqrt(precision), (k, p, p)).copy()
    return LaplacePosterior(np.zeros((k, p)), factor, np.array(precision))


def fit(sums: Sums, family: Family, expand_all: Expand) -> LaplacePosterior:
    """The posterior, from the sums of all observations and a function that expands their log likelihood.

    The last regressor must be the constant 1. Newton's method starts from the mean reward of each action, where the
    expansion follows from the sums, and halves steps that lead downhill.
    """
    centre, at = np.zeros(sums.gram.shape[-1]), np.zeros(sums.moment.shape)
    rate = _rate(float(sums.moment[:, -1].sum()), float(sums.n.sum()), 0.5)
    centre[-1] = family.link(rate)
    rates = _rate(sums.moment[:, -1], sums.n, rate)
    at[:, -1] = family.link(rates)
    here, precision, evaluations = _constant(sums, family, rates), 1.0, 0
    while True:
        if evaluations <= _CHOICES:
            precision = best_precision(here, at - centre)
        mode, factor = _mode(here, at - centre, precision)
        to = centre + mode
        if _length(to - at, factor) < _SHORT or evaluations >= EVALUATIONS:
            return LaplacePosterior(to, factor, np.array(precision))
        there, evaluations = expand_all(to), evaluations + 1
        while evaluations < EVALUATIONS:
            uphill = _height(there, to - centre, precision) >= _height(here, at - centre, precision) - _SHORT
            if uphill.all():
                break
            to = np.where(uphill[:, None], to, (to + at) / 2)
            there, evaluations = expand_all(to), evaluations + 1
        at, here = to, there


def best_precision(expansion: Expansion, offset: Float64) -> float:
    """The precision on the grid with the highest evidence."""
    return float(PRECISIONS[np.argmax(log_evidence(expansion, offset, PRECISIONS))])


def log_evidence(expansion: Expansion, offset: Float64, precisions: Float64) -> Float64:
    """Log evidence of the expanded likelihood under N(centre, I/λ), for each precision λ, float64[L].

    Exact if the log likelihood is quadratic; the Laplace evidence if the expansion is at the mode.

    Args:
        expansion: Expansion of the log likelihood.
        offset: Coefficients of the expansion less the centre of the prior, float64[K, p].
        precisions: Prior precisions, float64[L].
    """
    values, pull, _ = _eigen(expansion, offset)
    gradient = np.einsum("kp,kp->", expansion.gradient, offset)
    bend = np.einsum("kp,kpq,kq->", offset, expansion.hessian, offset)
    constant = expansion.log_likelihood.sum() - gradient - bend / 2
    total = values[..., None] + precisions
    fitted = (pull[..., None] ** 2 / total + np.log(precisions) - np.log(total)).sum(axis=(0, 1)) / 2
    return np.asarray(constant + fitted)


def predictors(posterior: LaplacePosterior, regressors: Float64) -> Predictors:
    """The linear predictors of each action, for regressors float64[N, p]."""
    k, p = posterior.mean.shape
    scale, rows = np.empty((len(regressors), k)), max(_PRODUCTS // (k * p), 1)
    columns = posterior.factor.transpose(1, 0, 2).reshape(p, k * p)
    for first in range(0, len(regressors), rows):
        z = (regressors[first : first + rows] @ columns).reshape(-1, k, p)
        scale[first : first + rows] = np.sqrt(np.einsum("nkp,nkp->nk", z, z))
    return Predictors(regressors @ posterior.mean.T, scale)


def sample_best(drawn_from: Predictors, n: int, key: Key) -> NDArray[np.int64]:
    """The best action of each of n independent draws per context, int64[N, n]."""
    draws = key.generator().standard_normal((n, *drawn_from.mean.shape))
    best: NDArray[np.int64] = (drawn_from.mean + drawn_from.scale * draws).argmax(axis=-1).T
    return best


def _rate(total: Float64 | float, n: Float64 | float, before: Float64 | float) -> Float64:
    """Mean reward, with one observation of `before` added, so that its link is finite."""
    return np.asarray((total + before) / (n + 1))


def _constant(sums: Sums, family: Family, rates: Float64) -> Expansion:
    """The expansion where the expected reward of an action is the same in all contexts, rates float64[K]."""
    predictor = family.link(rates)
    likelihood = sums.moment[:, -1] * predictor - sums.n * family.log_normaliser(predictor)
    gradient = sums.moment - rates[:, None] * sums.gram[:, :, -1]
    return Expansion(likelihood, gradient, family.curvature(rates)[:, None, None] * sums.gram)


def _eigen(expansion: Expansion, offset: Float64) -> tuple[Float64, Float64, Float64]:
    """Eigenvalues of the Hessian, the gradient at the centre of the prior in their basis, and the basis."""
    values, vectors = np.linalg.eigh(expansion.hessian)
    at_centre = expansion.gradient + np.einsum("kpq,kq->kp", expansion.hessian, offset)
    return np.maximum(values, 0.0), np.einsum("kpq,kp->kq", vectors, at_centre), vectors


def _mode(expansion: Expansion, offset: Float64, precision: float) -> tuple[Float64, Float64]:
    """The mode less the centre, float64[K, p], and the factor of the covariance, float64[K, p, p]."""
    values, pull, vectors = _eigen(expansion, offset)
    total = values + precision
    return np.einsum("kpq,kq->kp", vectors, pull / total), vectors / np.sqrt(total)[:, None, :]


def _height(expansion: Expansion, offset: Float64, precision: float) -> Float64:
    """Log posterior density of each action, up to a constant, float64[K]."""
    return np.asarray(expansion.log_likelihood - precision / 2 * (offset**2).sum(axis=1))


def _length(step: Float64, factor: Float64) -> float:
    """Largest squared length of a step among the actions, in posterior standard deviations."""
    # The precision is the inverse of FFᵀ, and the columns of F are orthogonal.
    scaled = np.einsum("kpq,kp->kq", factor, step) / (factor**2).sum(axis=1)
    return float((scaled**2).sum(axis=1).max())
