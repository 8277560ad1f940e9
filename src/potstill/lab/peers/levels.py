"""A bandit on a list of actions, for a number: it chooses among evenly spaced levels on the scale of the space."""

from __future__ import annotations

import numpy as np

from potstill.lab.peers import TimedPeer
from potstill.lab.peers.mabwiser import Mabwiser
from potstill.lab.problems import Choices, Float32
from potstill.problem import Discrete, Observations, Problem
from potstill.spaces import Continuous


class Levels(TimedPeer):
    """MABWiser's bandit on levels. Numbers between levels, as in the first batch, count as the nearest.

    Args:
        problem: The problem; its action is a number.
        seed: Seed of the bandit.
        levels: Number of levels, both ends included.
        policy: Name of a linear learning policy.
        alpha: Amount of exploration.
    """

    def __init__(self, problem: Problem, seed: int, levels: int, policy: str, alpha: float) -> None:
        assert isinstance(problem.actions, Continuous)
        self._space = problem.actions
        self._numbers = self._space.from_unit(np.linspace(0, 1, levels))
        names = Discrete([str(level) for level in range(levels)])
        self._problem = Problem(name=problem.name, context=problem.context, actions=names, reward=problem.reward)
        self._bandit = Mabwiser(levels, seed, policy, alpha)

    def choose(self, contexts: Float32) -> Choices:
        """The number of the level that the bandit chooses."""
        levels, ones = self._bandit.choose(contexts)
        return self._numbers[levels], ones

    def fit(self, observations: Observations) -> None:
        """Learn from the nearest levels."""
        nearest = np.rint(self._space.unit(observations.actions) * (len(self._numbers) - 1)).astype(np.int32)
        ones = np.ones(len(nearest), np.float32)
        self._bandit.fit(Observations(self._problem, observations.contexts, nearest, observations.rewards, ones))


def make(problem: Problem, seed: int, levels: int, policy: str, alpha: float) -> Levels:
    """Make an agent for one trial."""
    return Levels(problem, seed, levels, policy, alpha)
