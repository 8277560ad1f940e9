"""Observation weights, and stored observations for teachers without additive sufficient statistics."""

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


#: Format of a state with inverse-propensity weights. Format 1 normalised them in each batch or shard, so that its sums
#: cannot be added to others.
WEIGHTED_FORMAT = 2


def weights(observations: Observations, weighting: Weighting) -> NDArray[np.float64]:
    """The weight of each observation, float64[N]: 1, or the clipped inverse propensity.

    They are not normalised, because a part does not know the others. Normalise to mean 1 over all observations where a
    posterior is computed.
    """
    if weighting not in ("equal", "inverse-propensity"):
        raise InvalidOption(f"weighting must be 'equal' or 'inverse-propensity', got {weighting!r}")
    if weighting == "equal":
        return np.ones(len(observations))
    inverse: NDArray[np.float64] = 1 / np.maximum(observations.propensities.astype(np.float64), SMALLEST_PROPENSITY)
    return inverse


class Weights:
    """Mixin for teachers with an option `weighting`: the format of their states."""

    weighting: Weighting

    @property
    def state_format(self) -> int:
        """1 for equal weights, whose states have never changed; otherwise `WEIGHTED_FORMAT`."""
        return 1 if self.weighting == "equal" else WEIGHTED_FORMAT


class Memory(NamedTuple):
    """Observations as plain arrays, oldest first.

    Attributes:
        contexts: Encoded contexts, float32[N, d].
        actions: Positions of actions, int32[N]; numbers float64[N] on a continuous space.
        rewards: Rewards, float64[N].
        weights: Observation weights, not normalised, float64[N].
    """

    contexts: NDArray[np.float32]
    actions: NDArray[Any]
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

    def normalised(self) -> Memory:
        """The same observations with weights of mean 1."""
        return self._replace(weights=self.weights / self.weights.mean()) if len(self.weights) else self

    def rows(self, chosen: NDArray[Any] | slice) -> Memory:
        """A subset of the observations, by mask, slice or positions."""
        return Memory(self.contexts[chosen], self.actions[chosen], self.rewards[chosen], self.weights[chosen])


def empty(width: int) -> Memory:
    """A memory without observations, for contexts of `width` columns."""
    return Memory(np.zeros((0, width), np.float32), np.zeros(0, np.int32), np.zeros(0), np.zeros(0))
