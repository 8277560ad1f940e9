"""Bayesian linear regression of rewards on products of context columns and functions of the action.

Regressors are (1, x) ⊗ B(a), D = (d + 1)·size of them, then functions of the context alone. Sufficient statistics are
those of the regressors as they are, so that they add up. `fit` centres the columns and standardises the rewards from
them. In one context the reward is a combination of the `size` basis functions, whose coefficients have a mean and a
covariance of that size: no draw needs all D weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.teachers.continuous import evidence
from potstill.teachers.continuous.basis import Axis, cosines
from potstill.teachers.continuous.evidence import Scales
from potstill.teachers.continuous.maximiser import Coefficients
from potstill.teachers.contract import Float64
from potstill.teachers.linear import nig

#: Observations whose regressors are in memory at once.
_ROWS = 2048
#: Products of two columns in memory at once: 32 MB.
_CHUNK = 4_000_000
#: Rewards whose variance is below this share of their mean square are equal up to rounding.
_EQUAL = 1e-12


class Regression(NamedTuple):
    """The posterior of the weights.

    Attributes:
        scales: Prior scales, learnt.
        centre: Mean of each column, then of each function of the context, float64[d + R]; weights are those of columns
            and functions less these.
        unit: Mean and standard deviation of the rewards, float64[2]; weights are in these units.
        posterior: Posterior of the weights.
    """

    scales: Scales
    centre: Float64
    unit: Float64
    posterior: nig.Posterior


def sums(columns: NDArray[Any], others: NDArray[Any], basis: Float64, rewards: Float64, weights: Float64) -> nig.Sums:
    """Sufficient statistics of N observations.

    Args:
        columns: Columns x, [N, d].
        others: Functions of the context that have no product with the action, [N, R].
        basis: Basis functions of the action, float64[N, size].
        rewards: Rewards, float64[N].
        weights: Weights of the observations, float64[N].
    """
    arrays = columns, others, basis, rewards, weights
    parts = (tuple(array[i : i + _ROWS] for array in arrays) for i in range(0, max(len(rewards), 1), _ROWS))
    return reduce(add, (_sums(*part) for part in parts))


def _sums(columns: NDArray[Any], others: NDArray[Any], basis: Float64, rewards: Float64, weights: Float64) -> nig.Sums:
    x, size = _with_one(columns), basis.shape[1]
    products = (x[:, :, None] * basis[:, None]).reshape(len(x), x.shape[1] * size)
    regressors = np.concatenate([products, others], axis=1)
    return nig.sums(regressors, np.zeros(len(basis), np.int32), rewards, weights, 1)


def fit(total: nig.Sums, size: int, before: Scales) -> Regression:
    """The posterior from sufficient statistics, with scales learnt from those of the previous update."""
    centre, unit, standard = _standardise(total, size, len(before.relevance))
    scales = evidence.learn(standard, size, before)
    variances = scales.variances(size, len(centre) - len(scales.relevance))
    return Regression(scales, centre, unit, evidence.posterior(standard, variances))


def coefficients(fitted: Regression, columns: NDArray[Any], size: int) -> Iterator[Coefficients]:
    """The posterior of the coefficients in each of N contexts, in standardised units, in chunks of contexts."""
    x = _with_one(columns - fitted.centre[: columns.shape[1]])
    count, (alpha, beta) = x.shape[1], (float(fitted.posterior.alpha[0]), float(fitted.posterior.beta[0]))
    first, second = np.triu_indices(count)
    table, row, column = _by_pair(fitted.posterior, count, size, first, second), *np.triu_indices(size)
    step = max(1, _CHUNK // len(first))
    for start in range(0, len(x), step):
        some = x[start : start + step]
        covariance = np.empty((len(some), size, size))
        # A quadratic form of x: as one product with all pairs of columns it takes a fraction of the time.
        covariance[:, row, column] = covariance[:, column, row] = (some[:, first] * some[:, second]) @ table
        yield Coefficients(some @ _weights(fitted, count, size), covariance, alpha, beta)


def mean_rewards(fitted: Regression, columns: NDArray[Any], others: NDArray[Any], axis: Axis, size: int) -> Float64:
    """The posterior mean reward, or objective, at the middle of each bin, float64[N, bins]."""
    d, space, (offset, scale) = columns.shape[1], axis.space, fitted.unit
    x, basis = _with_one(columns - fitted.centre[:d]), cosines(space.unit(space.middles), size)
    of_context = (others - fitted.centre[d:]) @ fitted.posterior.mean[0, (d + 1) * size :]
    outcomes = offset + scale * (x @ (_weights(fitted, d + 1, size) @ basis.T) + of_context[:, None])
    return axis.maximised(np.asarray(outcomes))


def _weights(fitted: Regression, count: int, size: int) -> Float64:
    """Mean weights of the products, float64[d + 1, size]."""
    return fitted.posterior.mean[0, : count * size].reshape(count, size)


def _by_pair(
    fitted: nig.Posterior, count: int, size: int, first: NDArray[np.int64], second: NDArray[np.int64]
) -> Float64:
    """Covariances of the weights by pair of columns, float64[pairs, size·(size + 1)/2]."""
    square = evidence.covariance(fitted)[: count * size, : count * size].reshape(count, size, count, size)
    pairs = square.transpose(0, 2, 1, 3)[first, second]
    both = np.where((first == second)[:, None, None], pairs, pairs + pairs.swapaxes(1, 2))
    return np.ascontiguousarray(both[:, *np.triu_indices(size)])


def _standardise(total: nig.Sums, size: int, columns: int) -> tuple[Float64, Float64, nig.Sums]:
    """Means of the columns, mean and standard deviation of the rewards, and the statistics in these units."""
    n, end = float(total.n[0]), (columns + 1) * size
    if not n:
        return np.zeros(columns + total.gram.shape[1] - end), np.array([0.0, 1.0]), total
    ones = total.gram[0, 0]
    mean, square = total.moment[0, 0] / n, total.square[0] / n
    variance = float(square - mean**2)
    scale = np.sqrt(variance) if variance > _EQUAL * square else 1.0
    moment = (total.moment[0] - mean * ones) / scale
    # To centre column k, subtract its mean times column 0, function by function; functions of the context likewise.
    means = np.concatenate([np.zeros(size), np.repeat(ones[size:end:size], size), ones[end:]]) / n
    base = np.concatenate([np.tile(np.arange(size), columns + 1), np.zeros(len(ones) - end, np.int64)])
    gram = total.gram[0] - total.gram[0][:, base] * means
    gram -= means[:, None] * gram[base]
    moment = moment - means * moment[base]
    square = max(float(total.square[0] - n * mean**2), 0.0) / scale**2
    standard = nig.Sums(gram[None], moment[None], np.array([square]), total.n)
    return np.append(means[size:end:size], means[end:]), np.array([mean, scale]), standard


def _with_one(columns: NDArray[Any]) -> Float64:
    """Columns float64[N, d + 1]: a constant 1, then the columns."""
    return np.concatenate([np.ones((len(columns), 1)), columns.astype(np.float64)], axis=1)
