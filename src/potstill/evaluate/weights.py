"""Histogram of importance weights, counted while a target is evaluated."""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple, Self, cast

import numpy as np

from potstill.evaluate.log import Block
from potstill.evaluate.targets import Target
from potstill.policy import Policy
from potstill.spaces import Distribution

#: Edges of histogram bins: four per factor of ten. Weights beyond the ends count in the outermost bins.
EDGES = 10.0 ** np.arange(-4, 6.01, 0.25)
#: Range of bins that are shown even without rows, so that small and large weights differ at a glance.
_AROUND_ONE = (0.1, 10.0)


class WeightBin(NamedTuple):
    """Rows of similar weight.

    Attributes:
        low: Smallest weight.
        high: Largest weight.
        rows: Share of all rows.
        weight: Share of the total weight.
    """

    low: float
    high: float
    rows: float
    weight: float


class WeightHistogram:
    """A target that counts its importance weights while it is evaluated.

    Evaluate it on a log once: every pass counts the rows again. Only the bandwidth that a target was last smoothed with
    counts.
    """

    def __init__(self, target: Target) -> None:
        self.name = target.name
        self._target = target
        self._rows = np.zeros(len(EDGES) - 1, np.int64)
        self._weight = np.zeros(len(EDGES) - 1)
        self._zeros = np.zeros(1, np.int64)

    @property
    def policy(self) -> Policy | None:
        """The policy of the target, if it is one."""
        return getattr(self._target, "policy", None)

    def is_point(self, block: Block) -> bool:
        """Whether the target gives one number per row, which has no density."""
        return hasattr(self._target, "is_point") and self._target.is_point(block)

    def smoothed(self, bandwidth: float) -> Self:
        """The smoothed target, which counts into the same histogram; earlier counts are discarded."""
        made = copy(self)
        made._target = cast(Any, self._target).smoothed(bandwidth)
        for counts in (self._rows, self._weight, self._zeros):
            counts[:] = 0
        return made

    def distribution(self, block: Block, first_row: int) -> Distribution:
        """The distribution of the target."""
        distribution = self._target.distribution(block, first_row)
        weights = distribution.propensity(block.actions) / block.propensities
        positive = weights[weights > 0]
        place = np.clip(np.searchsorted(EDGES, positive, side="right") - 1, 0, len(self._rows) - 1)
        self._zeros += len(weights) - len(positive)
        self._rows += np.bincount(place, minlength=len(self._rows))
        self._weight += np.bincount(place, positive, minlength=len(self._rows))
        return distribution

    @property
    def zero(self) -> float:
        """The share of rows whose action the target never takes."""
        zero = int(self._zeros[0])
        return zero / max(zero + int(self._rows.sum()), 1)

    @property
    def bins(self) -> list[WeightBin]:
        """Bins in ascending order: those with rows and those around 1; empty if all weights are 0."""
        used = np.flatnonzero(self._rows)
        if not len(used):
            return []
        rows, weight = self._zeros[0] + self._rows.sum(), self._weight.sum()
        first, last = (int(np.searchsorted(EDGES, end * (1 - 1e-9))) for end in _AROUND_ONE)
        return [
            WeightBin(
                float(EDGES[i]), float(EDGES[i + 1]), float(self._rows[i] / rows), float(self._weight[i] / weight)
            )
            for i in range(min(used[0], first), max(used[-1] + 1, last))
        ]
