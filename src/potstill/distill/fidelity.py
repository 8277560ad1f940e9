"""Fidelity: how close a student's choices are to its teacher's, and what the difference can cost."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import rel_entr


class Fidelity(msgspec.Struct, frozen=True, kw_only=True):
    """A student measured against its teacher, on contexts that it was not trained on.

    Attributes:
        contexts: that it was measured on.
        kl_mean: KL(teacher ‖ student) in nats, the mean over contexts.
        kl_p95: the same, the 95th percentile.
        tv_mean: total variation, the mean over contexts: the share of decisions that differ.
        tv_max: the same, the largest.
        smallest_propensity: that the student gave to any action in any context.
        reward_range: L, the largest less the smallest mean reward.
        regret_price: L·√(kl_mean / 2), the most reward per decision that imitation can cost on average. This is
            Pinsker's inequality, term (b) of the paper's Lemma "imitation controls decomposition"; the paper takes a
            bound on |reward| for L, and the range makes it blind to adding a constant to all rewards.
    """

    contexts: int
    kl_mean: float
    kl_p95: float
    tv_mean: float
    tv_max: float
    smallest_propensity: float
    reward_range: float
    regret_price: float


def fidelity(labels: ArrayLike, probabilities: ArrayLike, reward_range: float) -> Fidelity:
    """Measure a student's probabilities [N, K] against the teacher's labels [N, K], both with rows that sum to 1.

    Labels may be zero. A probability that float32 has rounded to zero counts as the smallest number it can hold in
    full, so that the divergence stays finite.
    """
    teacher, student = np.asarray(labels, np.float64), np.asarray(probabilities, np.float64)
    _check(teacher, student, reward_range)
    kl = rel_entr(_rows(teacher), np.maximum(_rows(student), np.finfo(np.float32).tiny)).sum(axis=1)
    tv = np.abs(teacher - student).sum(axis=1) / 2
    kl_mean = max(float(kl.mean()), 0.0)  # equal rows leave a rounding error on either side of zero
    return Fidelity(
        contexts=len(teacher),
        kl_mean=kl_mean,
        kl_p95=float(np.percentile(kl, 95)),
        tv_mean=float(tv.mean()),
        tv_max=float(tv.max()),
        smallest_propensity=float(student.min()),
        reward_range=float(reward_range),
        regret_price=float(reward_range) * math.sqrt(kl_mean / 2),
    )


def _rows(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows that sum to 1 in float64 and not only in float32."""
    total: NDArray[np.float64] = values.sum(axis=1, keepdims=True)
    return values / total


def _check(teacher: NDArray[np.float64], student: NDArray[np.float64], reward_range: float) -> None:
    if teacher.ndim != 2 or teacher.shape != student.shape or not teacher.size:
        raise ValueError(
            "labels and probabilities must have one shape [N, K] that is not empty, "
            f"got {list(teacher.shape)} and {list(student.shape)}"
        )
    if not 0 <= reward_range < math.inf:
        raise ValueError(f"reward_range must be the largest less the smallest mean reward, got {reward_range!r}")
