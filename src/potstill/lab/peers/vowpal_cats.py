"""Vowpal Wabbit's CATS: a tree over bins of a number, with ε-greedy choice and a uniform kernel (Majzoubi et al. 2020).

The range is divided among `actions` leaves, and the kernel is as wide as one of them on either side. Costs are scaled
to [0, 1] by the declared range of rewards, as CATS expects.
"""

from __future__ import annotations

import numpy as np
from vowpalwabbit import Workspace

from potstill.keys import Key
from potstill.lab.peers import TimedPeer, reward_range
from potstill.lab.problems import Choices, Float32
from potstill.problem import Observations, Problem
from potstill.spaces import Continuous


class Cats(TimedPeer):
    """An agent on a CATS workspace, on the scale of the space.

    Args:
        problem: The problem; its action is a number.
        seed: Seed of its randomness.
        actions: Number of leaves.
    """

    def __init__(self, problem: Problem, seed: int, actions: int) -> None:
        assert isinstance(problem.actions, Continuous)
        self._space = problem.actions
        low, high = reward_range(problem)
        self._high, self._spread = high, high - low
        its_seed = Key(seed).child("vowpal").integer() % 2**31
        self.workspace = Workspace(
            f"--cats {actions} --bandwidth {1 / actions} --min_value 0 --max_value 1 --random_seed {its_seed} --quiet"
        )

    def choose(self, contexts: Float32) -> Choices:
        """The number that it draws for each context, and its density."""
        found = np.array([self.workspace.predict(f"|c {_columns(row)}") for row in contexts])
        numbers = self._space.from_unit(found[:, 0].clip(0, 1))
        return numbers, np.maximum(found[:, 1] * self._space.stretch(numbers), np.finfo(np.float32).tiny)

    def fit(self, observations: Observations) -> None:
        """Learn from decisions one after the other, in one pass."""
        units = self._space.unit(observations.actions)
        densities = observations.propensities / self._space.stretch(observations.actions)
        costs = (self._high - observations.rewards) / self._spread
        for row, unit, cost, density in zip(observations.contexts, units, costs, densities, strict=True):
            self.workspace.learn(f"ca {unit}:{cost}:{density} |c {_columns(row)}")


def _columns(row: Float32) -> str:
    return " ".join(f"{i}:{row[i]}" for i in np.flatnonzero(row))


def make(problem: Problem, seed: int, actions: int) -> Cats:
    """Make an agent for one trial."""
    return Cats(problem, seed, actions)
