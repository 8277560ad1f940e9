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

_SMALLEST = float(np.finfo(np.float32).tiny)


class Effect(msgspec.Struct, frozen=True):
    """Effect of one feature.

    Attributes:
        feature: Name of the feature.
        value: Value in the context; None if it was missing.
        moved: Probability mass that the feature moved, from 0 to 1: half the sum of absolute changes.
        change: Change of each action's probability: actual probability minus that at the feature's mean.
        log_odds: Change of the explanation's `log_odds`: that of the context minus that at the feature's mean.
    """

    feature: str
    value: object
    moved: float
    change: dict[str, float]
    log_odds: float


class Explanation(msgspec.Struct, frozen=True):
    """Explanation of the probabilities in a context.

    Attributes:
        probabilities: Probability of each action.
        average: Probability of each action at the mean of every feature.
        effects: Effect of each feature, strongest first; where probabilities saturate, by log-odds.
        best: The most probable action.
        runner_up: The next one.
        log_odds: Natural logarithm of the best action's probability over the runner-up's.
    """

    probabilities: dict[str, float]
    average: dict[str, float]
    effects: list[Effect]
    best: str
    runner_up: str
    log_odds: float


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
    second, first = np.argsort(p, kind="stable")[-2:]

    def by_action(values: Sequence[float]) -> dict[str, float]:
        return {name: float(value) for name, value in zip(names, values, strict=True)}

    def log_odds(values: NDArray[np.float32]) -> float:
        # A probability below the smallest float32 counts as that: logarithms stay finite.
        chosen, other = np.log(np.maximum(values[[first, second]].astype(np.float64), _SMALLEST))
        return float(chosen - other)

    lead = log_odds(p)
    effects = [
        Effect(
            feature.name,
            context.get(feature.name),
            float(np.abs(p - q).sum() / 2),
            by_action(p - q),
            lead - log_odds(q),
        )
        for feature, q in zip(problem.context, without, strict=True)
    ]
    effects.sort(key=lambda effect: (-round(effect.moved, 3), -abs(effect.log_odds)))
    return Explanation(by_action(p), by_action(average), effects, names[first], names[second], lead)


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
