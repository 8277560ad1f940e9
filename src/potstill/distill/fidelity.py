"""Fidelity: how close a student's choices are to its teacher's, and what the difference can cost."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from potstill.distill.network import Float32
from potstill.spaces import Distribution, FiniteDistribution, Learning


class Fidelity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A student measured against its teacher, on contexts that it was not trained on.

    Divergences are of the student before its policy's floor, which is a choice and no error of imitation. What the
    floor costs is stated apart; without a floor it is zero, and left out of files.

    Attributes:
        contexts: Number of contexts that it was measured on.
        kl_mean: KL(teacher ‖ student) in nats, the mean over contexts.
        kl_p95: Its 95th percentile over contexts.
        tv_mean: Total variation, the mean over contexts: the share of decisions that differ.
        tv_max: The largest total variation of a context.
        smallest_propensity: The smallest propensity that the policy gave to any action in any context, floor included.
        reward_range: L, the largest less the smallest mean reward.
        regret_price: L·√(kl_mean / 2), the most reward per decision that imitation can cost on average. This is
            Pinsker's inequality, term (b) of the paper's Lemma "imitation controls decomposition"; the paper takes a
            bound on |reward| for L, and the range makes it blind to adding a constant to all rewards.
        floor_tv: Share of decisions that the floor changes: total variation between the policy with its floor and
            without, the mean over contexts.
        floor_price: L·floor_tv, the most reward per decision that the floor can cost on average.
    """

    contexts: int
    kl_mean: float
    kl_p95: float
    tv_mean: float
    tv_max: float
    smallest_propensity: float
    reward_range: float
    regret_price: float
    floor_tv: float = 0.0
    floor_price: float = 0.0


def fidelity(
    learning: Learning,
    labels: Float32,
    distribution: Distribution,
    reward_range: float,
    *,
    served: Distribution | None = None,
) -> Fidelity:
    """Measure a student's distributions against the labels of its teacher.

    Args:
        learning: Imitation on the action space.
        labels: Labels of the teacher.
        distribution: The student's distributions, without a floor.
        reward_range: The largest less the smallest mean reward.
        served: The same with the floor of the policy; the same if left out.
    """
    if not 0 <= reward_range < math.inf:
        raise ValueError(f"reward_range must be the largest less the smallest mean reward, got {reward_range!r}")
    kl, tv, smallest = learning.divergences(labels, distribution)
    kl_mean = max(float(kl.mean()), 0.0)  # equal rows leave a rounding error on either side of zero
    measured = Fidelity(
        contexts=len(labels),
        kl_mean=kl_mean,
        kl_p95=float(np.percentile(kl, 95)),
        tv_mean=float(tv.mean()),
        tv_max=float(tv.max()),
        smallest_propensity=smallest,
        reward_range=float(reward_range),
        regret_price=float(reward_range) * math.sqrt(kl_mean / 2),
    )
    return measured if served is None else _with_floor(measured, learning, distribution, served)


def _with_floor(measured: Fidelity, learning: Learning, distribution: Distribution, served: Distribution) -> Fidelity:
    """The measure of a policy with a floor, which only finite spaces have."""
    assert isinstance(distribution, FiniteDistribution)
    _, tv, smallest = learning.divergences(distribution.p, served)
    moved = float(tv.mean())
    price = measured.reward_range * moved
    return msgspec.structs.replace(measured, smallest_propensity=smallest, floor_tv=moved, floor_price=price)
