"""Vowpal Wabbit on items with features: ``--cb_explore_adf`` with one line for each item.

An item's line has its features and, as a feature of its own, its id. The interaction of every column of the context
with every feature of the item (``-q ca``) makes it the model of Potstill's `CatalogLinearTS`: features, their products,
and an effect of each item. Costs are negated rewards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from vowpalwabbit import Workspace

from potstill.keys import Key
from potstill.lab.peers import drawn
from potstill.lab.problems import Choices, Float32
from potstill.problem import Observations, Problem


class VowpalItems:
    """An agent on a Vowpal Wabbit workspace.

    Args:
        problem: Problem with the first items.
        seed: Seed of its randomness, and of the draws from its probabilities.
        arguments: Command-line arguments that select the exploration.
    """

    def __init__(self, problem: Problem, seed: int, arguments: str) -> None:
        key = Key(seed)
        its_seed = key.child("vowpal").integer() % 2**31
        self._workspace = Workspace(f"--cb_explore_adf {arguments} -q ca -b 22 --random_seed {its_seed} --quiet")
        self._rng = key.child("draws").generator()
        self.follow(problem)

    def follow(self, problem: Problem) -> None:
        """Decide among other items."""
        space: Any = problem.actions
        lines = zip(space.names, space.encoded, strict=True)
        self._items = [f"|a {_columns(row)} |i {name.replace(' ', '_')}" for name, row in lines]

    def choose(self, contexts: Float32) -> Choices:
        """Draw from the probabilities that it gives for each context."""
        probabilities = [self._workspace.predict([shared, *self._items]) for shared in _shared(contexts)]
        return drawn(np.array(probabilities), self._rng)

    def learn(self, observations: Observations) -> None:
        """Learn from decisions one after the other, in one pass."""
        taken = zip(observations.actions, observations.rewards, observations.propensities, strict=True)
        for shared, (action, reward, propensity) in zip(_shared(observations.contexts), taken, strict=True):
            lines = list(self._items)
            lines[action] = f"0:{-reward}:{propensity} {lines[action]}"
            self._workspace.learn([shared, *lines])


def _shared(contexts: Float32) -> Iterator[str]:
    """The shared line of each context."""
    for row in contexts:
        yield f"shared |c {_columns(row)}"


def _columns(row: Float32) -> str:
    return " ".join(f"{i}:{row[i]}" for i in np.flatnonzero(row))


def make(problem: Problem, seed: int, arguments: str) -> VowpalItems:
    """Make an agent for one trial."""
    return VowpalItems(problem, seed, arguments)
