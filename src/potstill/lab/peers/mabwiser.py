"""MABWiser: one ridge regression for each action (Strong, Kleynhans, Kadıoğlu 2019)."""

from __future__ import annotations

import numpy as np
from mabwiser.mab import MAB, LearningPolicy

from potstill.lab.peers import TimedPeer, with_intercept
from potstill.lab.problems import Choices, Float32
from potstill.problem import Observations


class Mabwiser(TimedPeer):
    """A MABWiser bandit. Its regressions have no intercept, so contexts get a column of ones.

    Args:
        actions: Number of actions.
        seed: Seed of its generator.
        policy: Name of a linear learning policy.
        alpha: Amount of exploration.
    """

    def __init__(self, actions: int, seed: int, policy: str, alpha: float) -> None:
        self.bandit = MAB(list(range(actions)), getattr(LearningPolicy, policy)(alpha=alpha), seed=seed)
        self._fitted = False

    def choose(self, contexts: Float32) -> Choices:
        """Predict for the whole batch at once. The library gives no probabilities; 1 is reported."""
        actions = np.atleast_1d(self.bandit.predict(with_intercept(contexts))).astype(np.int64)
        return actions, np.ones(len(actions), np.float32)

    def fit(self, observations: Observations) -> None:
        """Fit, or continue fitting."""
        take_in = self.bandit.partial_fit if self._fitted else self.bandit.fit
        take_in(observations.actions, observations.rewards, with_intercept(observations.contexts))
        self._fitted = True


def make(actions: int, seed: int, policy: str, alpha: float) -> Mabwiser:
    """Make an agent for one trial."""
    return Mabwiser(actions, seed, policy, alpha)
