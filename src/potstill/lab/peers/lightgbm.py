"""LightGBM: gradient-boosted trees of the reward, with ε-greedy choice.

One model predicts the reward from the context and the action, a categorical column. On tables with many classes it
learns from fewer observations than one model for each action, whose leaves need 20 observations of that action.
"""

from __future__ import annotations

import lightgbm
import numpy as np

from potstill.keys import Key
from potstill.lab.peers import TimedPeer, drawn, greedy_shares
from potstill.lab.problems import Choices, Float32, Float64
from potstill.problem import Observations

#: The library's defaults, on one thread and with equal results for equal data.
PARAMETERS = {
    "objective": "regression",
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}


class Boosted(TimedPeer):
    """ε-greedy on the predictions of one model, fitted to all observations at each update.

    Args:
        actions: Number of actions.
        seed: Seed of its draws.
        epsilon: Probability of a uniform choice.
    """

    def __init__(self, actions: int, seed: int, epsilon: float) -> None:
        self._actions, self._epsilon = actions, epsilon
        self._rng = Key(seed).generator()
        self._batches: list[Observations] = []
        self._model: lightgbm.Booster | None = None

    def choose(self, contexts: Float32) -> Choices:
        """Draw from the mixture of the best prediction and a uniform choice."""
        best = greedy_shares(self._predictions(contexts))
        return drawn((1 - self._epsilon) * best + self._epsilon / self._actions, self._rng)

    def _predictions(self, contexts: Float32) -> Float64:
        """Predicted reward of each action, float64[N, K]."""
        if self._model is None:
            return np.zeros((len(contexts), self._actions))
        rows = _inputs(np.tile(np.arange(self._actions), len(contexts)), contexts.repeat(self._actions, axis=0))
        return np.asarray(self._model.predict(rows, num_threads=1)).reshape(len(contexts), self._actions)

    def fit(self, observations: Observations) -> None:
        """Fit a new model to all observations so far."""
        self._batches.append(observations)
        every = Observations.joined(observations.problem, self._batches)
        rows = lightgbm.Dataset(_inputs(every.actions, every.contexts), every.rewards, categorical_feature=[0])
        self._model = lightgbm.train(PARAMETERS, rows)


def _inputs(actions: np.ndarray, contexts: Float32) -> Float32:
    """The action as first column, then the context, float32[N, 1 + d]."""
    return np.column_stack([actions.astype(np.float32), contexts])


def make(actions: int, seed: int, epsilon: float) -> Boosted:
    """Make an agent for one trial."""
    return Boosted(actions, seed, epsilon)
