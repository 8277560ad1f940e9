"""How a target's weights are spread: counted on the way, while a log is evaluated."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.evaluate.log import Block
from potstill.evaluate.targets import Target

#: Bins: four to the factor of ten. Weights beyond the ends are counted in the outermost ones.
EDGES = 10.0 ** np.arange(-4, 6.01, 0.25)
#: Bins that are there also without rows, so that small weights are told from large ones at a glance.
_AROUND_ONE = (0.1, 10.0)


class Bin(NamedTuple):
    """Rows of similar weight.

    Attributes:
        low: the smallest weight.
        high: the largest.
        rows: share of all rows.
        weight: share of the total weight.
    """

    low: float
    high: float
    rows: float
    weight: float


class Weighing:
    """A target that counts its weights: the probability of each logged action over its propensity.

    Rows are counted as they go by, so a log must be gone through once with it.
    """

    def __init__(self, target: Target) -> None:
        self.name = target.name
        self._target = target
        self._rows = np.zeros(len(EDGES) - 1, np.int64)
        self._weight = np.zeros(len(EDGES) - 1)
        self._zero = 0

    def probabilities(self, block: Block, first_row: int) -> NDArray[np.float64]:
        """Those of the target."""
        p = self._target.probabilities(block, first_row)
        weights = p[np.arange(len(block)), block.actions] / block.propensities
        positive = weights[weights > 0]
        place = np.clip(np.searchsorted(EDGES, positive, side="right") - 1, 0, len(self._rows) - 1)
        self._zero += len(weights) - len(positive)
        self._rows += np.bincount(place, minlength=len(self._rows))
        self._weight += np.bincount(place, positive, minlength=len(self._rows))
        return p

    @property
    def zero(self) -> float:
        """The share of rows whose action the target never takes."""
        return self._zero / max(self._zero + int(self._rows.sum()), 1)

    @property
    def bins(self) -> list[Bin]:
        """From small weights to large ones: where there are rows, and about 1; empty if all weights are 0."""
        used = np.flatnonzero(self._rows)
        if not len(used):
            return []
        rows, weight = self._zero + self._rows.sum(), self._weight.sum()
        first, last = (int(np.searchsorted(EDGES, end * (1 - 1e-9))) for end in _AROUND_ONE)
        return [
            Bin(float(EDGES[i]), float(EDGES[i + 1]), float(self._rows[i] / rows), float(self._weight[i] / weight))
            for i in range(min(used[0], first), max(used[-1] + 1, last))
        ]
