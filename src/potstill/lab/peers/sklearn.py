"""scikit-learn: Thompson sampling with random forests (after Elmachtoub, McNellis, Oh, Petrik 2017).

A tree of a random forest is fitted to a bootstrap sample, and so is a draw of the reward function. Their paper draws
one tree; the mean of several is a narrower draw.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestRegressor

from potstill.keys import Key
from potstill.lab.peers import TimedPeer, drawn, greedy_shares
from potstill.lab.problems import Choices, Float32, Float64
from potstill.problem import Observations


class ForestSampling(TimedPeer):
    """A random forest for each action, fitted to all its observations at each update.

    Args:
        actions: Number of actions.
        seed: Seed of forests and draws.
        trees: Number of trees of a forest.
        drawn: Number of trees whose mean is a draw of the reward.
    """

    def __init__(self, actions: int, seed: int, trees: int, drawn: int) -> None:
        self._trees, self._drawn, self._key = trees, drawn, Key(seed)
        self._rng = self._key.child("draws").generator()
        self._batches: list[Observations] = []
        self._forests: list[RandomForestRegressor | None] = [None] * actions

    def choose(self, contexts: Float32) -> Choices:
        """The largest draw of each context. There are no probabilities; 1 is reported."""
        draws = np.stack([self._draw(forest, contexts) for forest in self._forests], axis=1)
        actions, _ = drawn(greedy_shares(draws), self._rng)
        return actions, np.ones(len(actions), np.float32)

    def _draw(self, forest: RandomForestRegressor | None, contexts: Float32) -> Float64:
        """Mean prediction of trees drawn for each context, float64[N]; infinite for an action without observations."""
        if forest is None:
            return np.full(len(contexts), np.inf)
        chosen = self._rng.integers(self._trees, size=(len(contexts), self._drawn))
        total = np.zeros(len(contexts))
        for number, tree in enumerate(forest.estimators_):
            times: NDArray[np.int64] = (chosen == number).sum(axis=1)
            rows = np.flatnonzero(times)
            if len(rows):
                total[rows] += times[rows] * tree.predict(contexts[rows], check_input=False)
        return total / self._drawn

    def fit(self, observations: Observations) -> None:
        """Fit new forests to all observations so far."""
        self._batches.append(observations)
        every = Observations.joined(observations.problem, self._batches)
        for action in range(len(self._forests)):
            rows = every.actions == action
            if rows.any():
                self._forests[action] = self._forest(action).fit(every.contexts[rows], every.rewards[rows])

    def _forest(self, action: int) -> RandomForestRegressor:
        # Its generator takes only small seeds.
        seed = self._key.child("forest", len(self._batches), action).integer() % 2**31
        return RandomForestRegressor(self._trees, random_state=seed, n_jobs=1)


def make(actions: int, seed: int, trees: int, drawn: int) -> ForestSampling:
    """Make an agent for one trial."""
    return ForestSampling(actions, seed, trees, drawn)
