"""The observations themselves, for teachers whose posterior is not a sum over them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.problem import Observations


class Memory(NamedTuple):
    """Observations as plain arrays, the oldest first.

    Attributes:
        contexts: float32[N, d].
        actions: int32[N].
        rewards: float64[N].
        weights: how much each counts, float64[N].
    """

    contexts: NDArray[np.float32]
    actions: NDArray[np.int32]
    rewards: NDArray[np.float64]
    weights: NDArray[np.float64]

    def remember(self, observations: Observations, window: int | None, weights: NDArray[np.float64]) -> Memory:
        """This memory and more observations; with a window, only that many of the latest."""
        joined = (
            np.concatenate([self.contexts, observations.contexts]),
            np.concatenate([self.actions, observations.actions]),
            np.concatenate([self.rewards, observations.rewards]),
            np.concatenate([self.weights, weights]),
        )
        return Memory(*joined) if window is None else Memory(*(array[-window:] for array in joined))

    def rows(self, chosen: NDArray[Any] | slice) -> Memory:
        """Some of the observations, by mask or positions."""
        return Memory(self.contexts[chosen], self.actions[chosen], self.rewards[chosen], self.weights[chosen])


def empty(width: int) -> Memory:
    """Nothing observed yet, of contexts with that many columns."""
    return Memory(np.zeros((0, width), np.float32), np.zeros(0, np.int32), np.zeros(0), np.zeros(0))
