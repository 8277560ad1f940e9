"""Which features moved a decision's probabilities: a small, honest attribution.

For each feature in turn, its encoded columns are replaced by their mean over the training contexts, and the change of
the probabilities is that feature's effect. Effects of features that act together do not add up to the whole change;
nothing here pretends that they do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from potstill.policy.policy import Policy
from potstill.spaces import finite


class Effect(msgspec.Struct, frozen=True):
    """What one feature did.

    Attributes:
        feature: Its name.
        value: Value as given; None if it was missing.
        moved: Half the sum of absolute changes: the probability mass that the feature moved, from 0 to 1.
        change: Change per action, the probability as it is minus what it would be at the feature's mean.
    """

    feature: str
    value: object
    moved: float
    change: dict[str, float]


class Explanation(msgspec.Struct, frozen=True):
    """Why a context has its probabilities.

    Attributes:
        probabilities: Probabilities per action.
        average: Average per action, at the mean of every feature.
        effects: Effects per feature, the strongest first.
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
    row = problem.encode(context)
    variants = [row, policy.mean]
    at = 0
    for feature in problem.context:
        columns = slice(at, at + len(feature.labels))
        replaced = row.copy()
        replaced[columns] = policy.mean[columns]
        variants.append(replaced)
        at = columns.stop
    mask = None if eligible is None else problem.actions.restrict(eligible).allowed[0]
    p, average, *without = policy.probabilities_many(np.stack(variants), eligible=mask, floor=floor)

    def by_action(values: Sequence[float]) -> dict[str, float]:
        return {name: float(value) for name, value in zip(names, values, strict=True)}

    effects = [
        Effect(feature.name, context.get(feature.name), float(np.abs(p - q).sum() / 2), by_action(p - q))
        for feature, q in zip(problem.context, without, strict=True)
    ]
    effects.sort(key=lambda effect: -effect.moved)
    return Explanation(by_action(p), by_action(average), effects)
