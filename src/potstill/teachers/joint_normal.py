"""Jointly normal rewards of all actions: joint draws, and the probability that each action is the best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from potstill.teachers.contract import Bool, Float32
from potstill.teachers.propensities import among, part_of

Float64 = NDArray[np.float64]
#: From covariances float64[N, K, K] to R with R·Rᵀ equal to them.
Root = Callable[[Float64], Float64]
#: Added to variances, relative to the sum of a context's variances, so that rounding leaves them positive definite.
_JITTER = 1e-9


class Joint(NamedTuple):
    """Jointly normal mean rewards of all actions in each context.

    Attributes:
        mean: Means, float64[N, K].
        covariance: Covariances between actions, float64[N, K, K].
    """

    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]


def eigen_root(covariance: Float64) -> Float64:
    """A root by eigenvalues, which exist also if actions are perfectly correlated."""
    size, vectors = np.linalg.eigh(covariance)
    root: Float64 = vectors * np.sqrt(np.maximum(size, 0.0))[:, None, :]
    return root


def cholesky_root(covariance: Float64) -> Float64:
    """A root by Cholesky factors, which cost a fraction of eigenvalues; by those where there is no factor."""
    shift = _JITTER * np.trace(covariance, axis1=1, axis2=2)[:, None, None] * np.eye(covariance.shape[1])
    try:
        return np.asarray(np.linalg.cholesky(covariance + shift), np.float64)
    except np.linalg.LinAlgError:
        return eigen_root(covariance)


def draws(joint: Joint, n: int, rng: np.random.Generator, root: Root = eigen_root) -> Float32:
    """Joint draws of the rewards in each context, float32[N, K, n], minus the context's largest mean.

    The shift does not change which action is the best, and saves float32 precision. Contexts have draws of their own.
    """
    normal = rng.standard_normal((*joint.mean.shape, n), dtype=np.float32)
    centred = joint.mean - joint.mean.max(axis=1, keepdims=True)
    return np.asarray(root(joint.covariance).astype(np.float32) @ normal + centred.astype(np.float32)[:, :, None])


def shares(
    joint: Joint, n: int, rng: np.random.Generator, root: Root = eigen_root, eligible: Bool | None = None
) -> Float32:
    """The probability that each action is the best, float32[N, K]: the share of n draws; exact for two actions.

    With `eligible`, bool[N, K], it is the best of the eligible actions in the same draws; the others get 0.
    """
    if joint.mean.shape[1] == 2:
        both = _best_of_two(joint)
        return both if eligible is None else np.where(eligible.all(axis=1, keepdims=True), both, eligible)
    rewards = among(draws(joint, n, rng, root), None if eligible is None else eligible[:, :, None])
    wins = (rewards == rewards.max(axis=1, keepdims=True)).sum(axis=2, dtype=np.float32)
    # A tie counts as a win for each tied action.
    return np.asarray(wins / wins.sum(axis=1, keepdims=True))


def shares_in_turn(
    joints: Iterable[Joint], n: int, rng: np.random.Generator, eligible: Bool | None, root: Root = eigen_root
) -> Iterator[Float32]:
    """`shares` of consecutive parts of the contexts; `eligible` is of all of them."""
    first = 0
    for joint in joints:
        rows = slice(first, first + len(joint.mean))
        first = rows.stop
        yield shares(joint, n, rng, root, part_of(eligible, rows))


def _best_of_two(joint: Joint) -> Float32:
    """Exactly: the difference of two jointly normal rewards is normal."""
    gap, covariance = joint.mean[:, 1] - joint.mean[:, 0], joint.covariance
    variance = covariance[:, 0, 0] + covariance[:, 1, 1] - 2 * covariance[:, 0, 1]
    second = ndtr(gap / np.sqrt(np.maximum(variance, np.finfo(np.float64).tiny)))
    return np.stack([1 - second, second], axis=1).astype(np.float32)
