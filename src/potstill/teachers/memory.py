"""Stored observations and their weights, for teachers without additive sufficient statistics."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidOption
from potstill.problem import Observations

#: ``inverse-propensity`` makes rare actions count as if all had been taken equally often. The paper uses ``equal`` and
#: suggests that inverse propensities may help.
Weighting = Literal["equal", "inverse-propensity"]

#: Propensities are clipped from below at this value: one rare draw must not outweigh a batch.
SMALLEST_PROPENSITY = 0.01


def weights(observations: Observations, weighting: Weighting, mean: float | None = None) -> NDArray[np.float64]:
    """The weight of each observation, float64[N].

    Args:
        observations: The observations.
        weighting: Weighting scheme.
        mean: Mean inverse propensity over the full data set of which these observations are a part, so that weights
            have mean 1 over the full set. By default the mean over these observations.
    """
    if weighting not in ("equal", "inverse-propensity"):
        raise InvalidOption(f"weighting must be 'equal' or 'inverse-propensity', got {weighting!r}")
    if weighting == "equal" or not len(observations):
        return np.ones(len(observations))
    inverse = inverse_propensities(observations)
    scaled: NDArray[np.float64] = inverse / (inverse.mean() if mean is None else mean)
    return scaled


def inverse_propensities(observations: Observations) -> NDArray[np.float64]:
    """Inverse propensities, clipped, float64[N]."""
    inverse: NDArray[np.float64] = 1 / np.maximum(observations.propensities.astype(np.float64), SMALLEST_PROPENSITY)
    return inverse


class Memory(NamedTuple):
    """Observations as plain arrays, oldest first.

    Attributes:
        contexts: Encoded contexts, float32[N, d].
        actions: Positions of actions, int32[N].
        rewards: Rewards, float64[N].
        weights: Observation weights, float64[N].
    """

    contexts: NDArray[np.float32]
    actions: NDArray[np.int32]
    rewards: NDArray[np.float64]
    weights: NDArray[np.float64]

    def append(self, observations: Observations, window: int | None, weights: NDArray[np.float64]) -> Memory:
        """This memory plus more observations; with a window, only the latest `window` of them."""
        joined = (
            np.concatenate([self.contexts, observations.contexts]),
            np.concatenate([self.actions, observations.actions]),
            np.concatenate([self.rewards, observations.rewards]),
            np.concatenate([self.weights, weights]),
        )
        return Memory(*joined) if window is None else Memory(*(array[-window:] for array in joined))

    def rows(self, chosen: NDArray[Any] | slice) -> Memory:
        """A subset of the observations, by mask, slice or positions."""
        return Memory(self.contexts[chosen], self.actions[chosen], self.rewards[chosen], self.weights[chosen])


def empty(width: int) -> Memory:
    """A memory without observations, for contexts of `width` columns."""
    return Memory(np.zeros((0, width), np.float32), np.zeros(0, np.int32), np.zeros(0), np.zeros(0))
