"""Jointly normal rewards of all actions: joint draws, and the probability that each action is the best."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from potstill.teachers.contract import Float32


class Joint(NamedTuple):
    """Jointly normal mean rewards of all actions in each context.

    Attributes:
        mean: Means, float64[N, K].
        covariance: Covariances between actions, float64[N, K, K].
    """

    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]


def draws(joint: Joint, n: int, rng: np.random.Generator) -> Float32:
    """Joint draws of the rewards in each context, float32[N, K, n], minus the context's largest mean.

    The shift does not change which action is the best, and saves float32 precision.
    """
    # Eigenvalues, because the covariance has no Cholesky factor if actions are perfectly correlated.
    size, vectors = np.linalg.eigh(joint.covariance)
    root = vectors * np.sqrt(np.maximum(size, 0.0))[:, None, :]
    normal = rng.standard_normal((*joint.mean.shape, n), dtype=np.float32)
    centred = joint.mean - joint.mean.max(axis=1, keepdims=True)
    return np.asarray(root.astype(np.float32) @ normal + centred.astype(np.float32)[:, :, None])


def shares(joint: Joint, n: int, rng: np.random.Generator) -> Float32:
    """The probability that each action is the best, float32[N, K]: the share of n draws; exact for two actions."""
    if joint.mean.shape[1] == 2:
        return _best_of_two(joint)
    rewards = draws(joint, n, rng)
    wins = (rewards == rewards.max(axis=1, keepdims=True)).sum(axis=2, dtype=np.float32)
    # A tie counts as a win for each tied action.
    return np.asarray(wins / wins.sum(axis=1, keepdims=True))


def _best_of_two(joint: Joint) -> Float32:
    """Exactly: the difference of two jointly normal rewards is normal."""
    gap, covariance = joint.mean[:, 1] - joint.mean[:, 0], joint.covariance
    variance = covariance[:, 0, 0] + covariance[:, 1, 1] - 2 * covariance[:, 0, 1]
    second = ndtr(gap / np.sqrt(np.maximum(variance, np.finfo(np.float64).tiny)))
    return np.stack([1 - second, second], axis=1).astype(np.float32)
