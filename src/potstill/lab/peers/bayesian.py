"""bayesianbandits: conjugate regressions behind scikit-learn's interface."""

from __future__ import annotations

import numpy as np
from bayesianbandits import Arm, ContextualAgent, NormalInverseGammaRegressor, ThompsonSampling

from potstill.lab.peers import TimedPeer, with_intercept
from potstill.lab.problems import Choices, Float32
from potstill.problem import Observations


class Conjugate(TimedPeer):
    """Thompson sampling with a normal-inverse-gamma regression for each action.

    Regressions have no intercept, so contexts get a column of ones.

    Args:
        actions: Number of actions.
        seed: Seed of its generator.
    """

    def __init__(self, actions: int, seed: int) -> None:
        arms = [Arm(action, learner=NormalInverseGammaRegressor()) for action in range(actions)]
        self.agent = ContextualAgent(arms, ThompsonSampling(), random_seed=seed)

    def choose(self, contexts: Float32) -> Choices:
        """Choose for the whole batch at once. The library gives no probabilities; 1 is reported."""
        actions = np.asarray(self.agent.pull(with_intercept(contexts)), np.int64)
        return actions, np.ones(len(actions), np.float32)

    def fit(self, observations: Observations) -> None:
        """Update the regression of each action that was taken."""
        contexts = with_intercept(observations.contexts)
        for action in np.unique(observations.actions):
            rows = observations.actions == action
            self.agent.select_for_update(int(action)).update(contexts[rows], observations.rewards[rows])


def make(actions: int, seed: int) -> Conjugate:
    """Make an agent for one trial."""
    return Conjugate(actions, seed)
