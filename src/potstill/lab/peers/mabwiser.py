"""MABWiser: ridge regressions apart for each action (Strong, Kleynhans, Kadıoğlu 2019)."""

from __future__ import annotations

import numpy as np
from mabwiser.mab import MAB, LearningPolicy

from potstill.lab.peers.shared import TimedPeer, with_intercept
from potstill.lab.problems import Decided, Float32
from potstill.problem import Observations


class Mabwiser(TimedPeer):
    """A bandit of MABWiser's. Its regressions have no intercept, so that contexts come with a column of ones.

    Args:
        actions: Number of actions.
        seed: Seed of its generator.
        policy: Name of a linear learning policy.
        alpha: Amount of exploration.
    """

    def __init__(self, actions: int, seed: int, policy: str, alpha: float) -> None:
        self.bandit = MAB(list(range(actions)), getattr(LearningPolicy, policy)(alpha=alpha), seed=seed)
        self._fitted = False

    def choose(self, contexts: Float32) -> Decided:
        """Predict the whole batch at once. Probabilities are not known to it, and 1 stands for them."""
        actions = np.atleast_1d(self.bandit.predict(with_intercept(contexts))).astype(np.int64)
        return actions, np.ones(len(actions), np.float32)

    def fit(self, observations: Observations) -> None:
        """Fit, or fit further."""
        take_in = self.bandit.partial_fit if self._fitted else self.bandit.fit
        take_in(observations.actions, observations.rewards, with_intercept(observations.contexts))
        self._fitted = True


def make(actions: int, seed: int, policy: str, alpha: float) -> Mabwiser:
    """An agent for one trial."""
    return Mabwiser(actions, seed, policy, alpha)
