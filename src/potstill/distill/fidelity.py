"""Fidelity: how close a student's choices are to its teacher's, and what the difference can cost."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.distill.network import Float32
from potstill.spaces import Distribution, Learning

#: Number of the present measures; `Still.measures` lists the earlier ones.
MEASURES = 4


class MaskFidelity(msgspec.Struct, frozen=True, kw_only=True):
    """A student measured where only some actions are eligible, drawn at random for each context.

    The teacher's probability is that of being the best of these, not of all actions.

    Attributes:
        actions: Number of eligible actions.
        contexts: Number of contexts that it was measured on.
        tv_mean: Total variation, the mean over contexts: the share of decisions that differ.
        tv_max: The largest total variation of a context.
    """

    actions: int
    contexts: int
    tv_mean: float
    tv_max: float


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
        smallest_propensity: The smallest propensity that the policy gave to any action in any context, floor included;
            of densities, relative to the uniform one.
        w1_mean: Wasserstein distance W₁ in units of the action, the mean over contexts; None if actions have no
            distance.
        w1_max: The largest W₁ of a context.
        w1_price: The mean over contexts of Lipschitz constant times W₁: a bound on `cost` by the appendix's lemma on
            Wasserstein distances. The constant is that of the posterior mean reward over actions, in each context.
        cost: Reward per decision that imitation gives up by the teacher's own estimate: Σ (teacher - student)·posterior
            mean reward over actions, the mean over contexts. Below zero if the student prefers better actions. None if
            the teacher gives no mean rewards.
        reward_range: L, the largest less the smallest reward that the problem declares. None if it declares none:
            rewards that were seen so far bound nothing.
        regret_price: L·√(kl_mean / 2), a bound on the reward per decision that imitation can cost on average; None
            without L. This is Pinsker's inequality, term (b) of the paper's Lemma "imitation controls decomposition";
            the paper takes a bound on |reward| for L, and the range makes it blind to adding a constant to all rewards.
        floor_tv: Share of decisions that the floor changes: total variation between the policy with its floor and
            without, the mean over contexts.
        floor_cost: Reward per decision that the floor gives up, as `cost`.
        floor_price: L·floor_tv, a bound on the reward per decision that the floor can cost on average.
        eligible: The same where only some actions are eligible, by their number; empty where the teacher cannot tell,
            or there are fewer than three actions.
    """

    contexts: int
    kl_mean: float
    kl_p95: float
    tv_mean: float
    tv_max: float
    smallest_propensity: float
    reward_range: float | None = None
    regret_price: float | None = None
    floor_tv: float = 0.0
    floor_price: float | None = 0.0
    cost: float | None = None
    floor_cost: float | None = None
    w1_mean: float | None = None
    w1_max: float | None = None
    w1_price: float | None = None
    eligible: tuple[MaskFidelity, ...] = ()


def fidelity(
    learning: Learning,
    labels: Float32,
    distribution: Distribution,
    reward_range: float | None,
    *,
    rewards: NDArray[np.float64] | None = None,
    served: Distribution | None = None,
) -> Fidelity:
    """Measure a student's distributions against the labels of its teacher.

    Args:
        learning: Imitation on the action space.
        labels: Labels of the teacher.
        distribution: The student's distributions, without a floor.
        reward_range: The largest less the smallest mean reward; None if not known.
        rewards: The teacher's mean reward of each action in each context, float64[N, K]; None if it gives none.
        served: The same with the floor of the policy; the same if left out.
    """
    if reward_range is not None and not 0 <= reward_range < math.inf:
        raise ValueError(f"reward_range must be the largest less the smallest mean reward, got {reward_range!r}")
    kl, tv, smallest, w1 = learning.divergences(labels, distribution)
    kl_mean = max(float(kl.mean()), 0.0)  # equal rows leave a rounding error on either side of zero
    measured = Fidelity(
        contexts=len(labels),
        kl_mean=kl_mean,
        kl_p95=float(np.percentile(kl, 95)),
        tv_mean=float(tv.mean()),
        tv_max=float(tv.max()),
        smallest_propensity=smallest,
        reward_range=None if reward_range is None else float(reward_range),
        regret_price=_scaled(reward_range, math.sqrt(kl_mean / 2)),
        cost=None if rewards is None else _given_up(labels, learning.labels_of(distribution), rewards),
        w1_mean=None if w1 is None else float(w1.mean()),
        w1_max=None if w1 is None else float(w1.max()),
        w1_price=None if w1 is None or rewards is None else _lipschitz_price(learning, rewards, w1),
    )
    return measured if served is None else _with_floor(measured, learning, distribution, served, rewards)


def _with_floor(
    measured: Fidelity,
    learning: Learning,
    distribution: Distribution,
    served: Distribution,
    rewards: NDArray[np.float64] | None,
) -> Fidelity:
    """The measure of a policy with a floor."""
    p = learning.labels_of(distribution)
    _, tv, smallest, _ = learning.divergences(p, served)
    moved = float(tv.mean())
    return msgspec.structs.replace(
        measured,
        smallest_propensity=smallest,
        floor_tv=moved,
        floor_price=_scaled(measured.reward_range, moved),
        floor_cost=None if rewards is None else _given_up(p, learning.labels_of(served), rewards),
    )


def _given_up(wanted: Float32, chosen: Float32, rewards: NDArray[np.float64]) -> float:
    """Σ (wanted - chosen)·reward over actions, the mean over contexts."""
    # Rewards less their best: probabilities add up to 1 only to float32, which a large common reward would show.
    gaps = rewards - rewards.max(axis=1, keepdims=True)
    return float(((wanted.astype(np.float64) - chosen) * gaps).sum(axis=1).mean())


def _lipschitz_price(learning: Learning, rewards: NDArray[np.float64], w1: NDArray[np.float64]) -> float | None:
    slopes = learning.lipschitz(rewards)
    return None if slopes is None else float((slopes * w1).mean())


def _scaled(reward_range: float | None, share: float) -> float | None:
    return None if reward_range is None else reward_range * share
