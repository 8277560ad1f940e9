"""Off-policy evaluation of numbers: exact density ratios, and kernels where a target has no density."""

from __future__ import annotations

import numpy as np

from potstill.spaces.continuous.space import Continuous
from potstill.spaces.contract import Actions, Bool, Float64
from potstill.spaces.ope import GeneralOffPolicy


class ContinuousOffPolicy(GeneralOffPolicy):
    """Distributions are densities, mostly `HistogramDistribution`."""

    def __init__(self, space: Continuous) -> None:
        super().__init__(space)
        self._low, self._high = space.low, space.high

    def permits(self, actions: Actions, allowed: Float64) -> Bool:
        """Whether the interval holds the number."""
        permitted: Bool = (actions >= allowed[:, 0]) & (actions <= allowed[:, 1])
        return permitted

    def unrestricted(self, rows: int) -> Float64:
        """The whole interval."""
        return np.tile([self._low, self._high], (rows, 1))


def off_policy(space: Continuous) -> ContinuousOffPolicy:
    """Off-policy evaluation on a continuous space."""
    return ContinuousOffPolicy(space)
