"""How much each observation counts."""

from __future__ import annotations

from typing import Literal

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
        observations: the observations.
        weighting: how much each counts.
        mean: of the inverse propensities of all observations that these are a part of; of these alone, if left out.
            Over those, weights have mean 1.
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
