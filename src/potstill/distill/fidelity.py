"""Fidelity: how close a student's choices are to its teacher's, and what the difference can cost."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from potstill.distill.network import Float32
from potstill.spaces import Distribution, Learning


class Fidelity(msgspec.Struct, frozen=True, kw_only=True):
    """A student measured against its teacher, on contexts that it was not trained on.

    Attributes:
        contexts: Number of contexts that it was measured on.
        kl_mean: KL(teacher ‖ student) in nats, the mean over contexts.
        kl_p95: Its 95th percentile over contexts.
        tv_mean: Total variation, the mean over contexts: the share of decisions that differ.
        tv_max: The largest total variation of a context.
        smallest_propensity: The smallest propensity that the student gave to any action in any context.
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


def fidelity(learning: Learning, labels: Float32, distribution: Distribution, reward_range: float) -> Fidelity:
    """Measure a student's distributions against the labels of its teacher."""
    if not 0 <= reward_range < math.inf:
        raise ValueError(f"reward_range must be the largest less the smallest mean reward, got {reward_range!r}")
    kl, tv, smallest = learning.divergences(labels, distribution)
    kl_mean = max(float(kl.mean()), 0.0)  # equal rows leave a rounding error on either side of zero
    return Fidelity(
        contexts=len(labels),
        kl_mean=kl_mean,
        kl_p95=float(np.percentile(kl, 95)),
        tv_mean=float(tv.mean()),
        tv_max=float(tv.max()),
        smallest_propensity=smallest,
        reward_range=float(reward_range),
        regret_price=float(reward_range) * math.sqrt(kl_mean / 2),
    )
