"""The observations themselves and their weights, for teachers whose posterior is not a sum over them."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.problem import Observations

#: ``inverse-propensity`` makes rare actions count as if they had been taken as often as the others. The paper does
#: without, and suspects that it may help.
Weighting = Literal["equal", "inverse-propensity"]

#: A propensity of 1 % and one of 0.001 % count the same: one lucky draw must not outweigh a batch.
SMALLEST_PROPENSITY = 0.01


def weights(observations: Observations, weighting: Weighting, mean: float | None = None) -> NDArray[np.float64]:
    """The weight of each observation, float64[N].

    Args:
        observations: The observations.
        weighting: How much each counts.
        mean: Mean inverse propensity of all observations that these are a part of, over which weights then have mean
            1; of these alone, if left out.
    """
    if weighting not in ("equal", "inverse-propensity"):
        raise ValueError(f"weighting must be 'equal' or 'inverse-propensity', got {weighting!r}")
    if weighting == "equal" or not len(observations):
        return np.ones(len(observations))
    inverse = inverse_propensities(observations)
    scaled: NDArray[np.float64] = inverse / (inverse.mean() if mean is None else mean)
    return scaled


def inverse_propensities(observations: Observations) -> NDArray[np.float64]:
    """One over each propensity, within bounds, float64[N]."""
    inverse: NDArray[np.float64] = 1 / np.maximum(observations.propensities.astype(np.float64), SMALLEST_PROPENSITY)
    return inverse


class Memory(NamedTuple):
    """Observations as plain arrays, the oldest first.

    Attributes:
        contexts: float32[N, d].
        actions: int32[N].
        rewards: float64[N].
        weights: How much each counts, float64[N].
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
