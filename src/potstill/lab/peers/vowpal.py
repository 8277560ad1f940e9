"""Vowpal Wabbit: online linear models with several kinds of exploration.

All kinds run as ``--cb_explore_adf`` with the interaction of every context column with every action (``-q ca``), so
that each action has its own linear model. Costs are negated rewards.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from vowpalwabbit import Workspace

from potstill.keys import Key
from potstill.lab.peers import TimedPeer, drawn
from potstill.lab.problems import Choices, Float32
from potstill.problem import Observations


class Vowpal(TimedPeer):
    """An agent on a Vowpal Wabbit workspace.

    Args:
        actions: Number of actions.
        seed: Seed of its randomness, and of the draws from its probabilities.
        arguments: Command-line arguments that select the exploration.
        bounds: Range of rewards, for explorations that need it.
    """

    def __init__(self, actions: int, seed: int, arguments: str, bounds: tuple[float, float] | None = None) -> None:
        key = Key(seed)
        # Its generator takes only small seeds.
        its_seed = key.child("vowpal").integer() % 2**31
        costs = f" --cb_min_cost {-bounds[1]} --cb_max_cost {-bounds[0]}" if bounds else ""
        self.workspace = Workspace(f"--cb_explore_adf {arguments}{costs} -q ca --random_seed {its_seed} --quiet")
        self._rng = key.child("draws").generator()
        self._actions = range(actions)

    def choose(self, contexts: Float32) -> Choices:
        """Draw from the probabilities that it gives for each context."""
        return drawn(np.array([self._probabilities(shared) for shared in _shared(contexts)]), self._rng)

    def _probabilities(self, shared: str) -> list[float]:
        return self.workspace.predict([shared, *(f"|a {action}" for action in self._actions)])  # type: ignore[no-any-return]

    def fit(self, observations: Observations) -> None:
        """Learn from decisions one after the other, in one pass."""
        taken = zip(observations.actions, observations.rewards, observations.propensities, strict=True)
        for shared, (action, reward, propensity) in zip(_shared(observations.contexts), taken, strict=True):
            label = f"0:{-reward}:{propensity} "
            self.workspace.learn([shared, *(f"{label if a == action else ''}|a {a}" for a in self._actions)])


def _shared(contexts: Float32) -> Iterator[str]:
    """The shared line of each context; columns that are 0 are left out."""
    for row in contexts:
        columns = " ".join(f"{i}:{row[i]}" for i in np.flatnonzero(row))
        yield f"shared |c {columns}"


def make(actions: int, seed: int, arguments: str, bounds: tuple[float, float] | None = None) -> Vowpal:
    """Make an agent for one trial."""
    return Vowpal(actions, seed, arguments, bounds)
