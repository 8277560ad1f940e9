"""Attribution of a decision's probabilities to features, by ablation.

For each feature in turn, its encoded columns are replaced by their mean over the training contexts; the change of the
probabilities is that feature's effect. Effects of interacting features do not add up to the total change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.policy.policy import Policy
from potstill.spaces import finite


class Effect(msgspec.Struct, frozen=True):
    """Effect of one feature.

    Attributes:
        feature: Name of the feature.
        value: Value in the context; None if it was missing.
        moved: Probability mass that the feature moved, from 0 to 1: half the sum of absolute changes.
        change: Change of each action's probability: actual probability minus that at the feature's mean.
    """

    feature: str
    value: object
    moved: float
    change: dict[str, float]


class Explanation(msgspec.Struct, frozen=True):
    """Explanation of the probabilities in a context.

    Attributes:
        probabilities: Probability of each action.
        average: Probability of each action at the mean of every feature.
        effects: Effect of each feature, strongest first.
    """

    probabilities: dict[str, float]
    average: dict[str, float]
    effects: list[Effect]


def explain(
    policy: Policy,
    context: Mapping[str, object],
    *,
    eligible: Sequence[str] | None = None,
    floor: float | None = None,
) -> Explanation:
    """Explain the probabilities of a context, by replacing one feature at a time."""
    problem, names = policy.problem, finite(policy.problem.actions, "explain").labels
    mask = None if eligible is None else problem.actions.restrict(eligible).allowed[0]
    p, average, *without = policy.probabilities_many(ablated(policy, context), eligible=mask, floor=floor)

    def by_action(values: Sequence[float]) -> dict[str, float]:
        return {name: float(value) for name, value in zip(names, values, strict=True)}

    effects = [
        Effect(feature.name, context.get(feature.name), float(np.abs(p - q).sum() / 2), by_action(p - q))
        for feature, q in zip(problem.context, without, strict=True)
    ]
    effects.sort(key=lambda effect: -effect.moved)
    return Explanation(by_action(p), by_action(average), effects)


def ablated(policy: Policy, context: Mapping[str, object]) -> NDArray[np.float32]:
    """The encoded context, the mean of every feature, and the context with one feature after another at its mean."""
    row = policy.problem.encode(context)
    variants, at = [row, policy.mean], 0
    for feature in policy.problem.context:
        columns = slice(at, at + len(feature.labels))
        replaced = row.copy()
        replaced[columns] = policy.mean[columns]
        variants.append(replaced)
        at = columns.stop
    return np.stack(variants)
