"""The histogram head: a softmax over bins, uniform within each bin.

The first draw of a decision selects the bin, the second the place within it. The place does not depend on
probabilities, so that runtimes whose probabilities differ in the last bit choose the same number, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import shown
from potstill.spaces.contract import Actions, Bool, Float32, Float64
from potstill.spaces.finite import choose
from potstill.spaces.softmax import softmax

#: Largest deviation of a number from the place that its draw selects, relative to the size of the number: rounding.
_ROUNDING = 1e-12


class HistogramHead(msgspec.Struct, frozen=True, dict=True):
    """Outputs are scores of bins. A floor is the share of decisions that are drawn uniformly over bins.

    Attributes:
        bounds: Edges of the bins, ascending.
    """

    bounds: tuple[float, ...]
    draws: int = 2
    kernel: str = "histogram"

    @property
    def outputs(self) -> int:
        """Number of bins."""
        return len(self.bounds) - 1

    @cached_property
    def edges(self) -> Float64:
        """Edges of the bins, float64[bins + 1]."""
        return np.array(self.bounds)

    def check_floor(self, floor: object) -> None:
        """Reject a floor that is not a share."""
        if isinstance(floor, bool) or not isinstance(floor, (int, float)) or not 0 <= floor <= 1:
            raise ValueError(f"floor must be a number from 0 to 1, the share of uniform decisions, got {shown(floor)}")

    def distribution(self, outputs: Float64, allowed: Float64 | None, floor: float) -> HistogramDistribution:
        """Histograms of scores float64[N, bins]; `allowed` is float64[N, 2]."""
        return self.histogram(softmax(outputs, self.mask(allowed), 0.0), allowed, floor)

    def mask(self, allowed: Float64 | None) -> Bool | None:
        """Bins that intervals float64[N, 2] allow in part or entirely, bool[N, bins]."""
        if allowed is None:
            return None
        overlap: Bool = (self.edges[1:] > allowed[:, :1]) & (self.edges[:-1] < allowed[:, 1:])
        return overlap

    def histogram(self, p: Float32, allowed: Float64 | None, floor: float) -> HistogramDistribution:
        """The distribution for probabilities float32[N, bins] of the bins that are allowed at least in part.

        A bin that is allowed in part keeps that part of its probability.
        """
        lower, upper = self.edges[None, :-1], self.edges[None, 1:]
        if allowed is None:
            part = np.ones_like(lower)
        else:
            width = upper - lower
            lower, upper = np.maximum(lower, allowed[:, :1]), np.minimum(upper, allowed[:, 1:])
            part = np.maximum(upper - lower, 0.0) / width
        q = p.astype(np.float64) * part
        q /= q.sum(axis=1, keepdims=True)
        if floor > 0:
            q = (1 - floor) * q + floor * (part / part.sum(axis=1, keepdims=True))
        return HistogramDistribution(q, lower, upper)


@dataclass(frozen=True, eq=False)
class HistogramDistribution:
    """Densities that are constant within bins, in N rows.

    Attributes:
        p: Probability of each bin, float64[N, bins].
        lower: Lower end of what is allowed of each bin, float64[N or 1, bins].
        upper: Upper end; not above the lower end if nothing of the bin is allowed.
    """

    p: NDArray[np.float64]
    lower: Float64
    upper: Float64

    def draw(self, u: Float64) -> Actions:
        """Numbers float64[N]: the first draw selects the bin, the second the place within it."""
        return self._place(choose(self.p, u[:, 0]), u[:, 1])  # type: ignore[arg-type]

    def propensity(self, actions: Actions) -> Float64:
        """The density at one number per row; 0 where the row does not allow it."""
        bins = self._bins(actions)
        lower, upper = self._ends(bins)
        inside = (actions >= lower) & (actions <= upper) & (upper > lower)
        width = np.where(inside, upper - lower, 1.0)
        return np.where(inside, self.p[np.arange(len(self.p)), bins] / width, 0.0)

    def drawn(self, u: Float64, actions: Actions, tolerance: float | Float64) -> Bool:
        """Whether the first draw may select the bin, and the second selects this place within it."""
        bins, rows = self._bins(actions), np.arange(len(self.p))
        reached = self.p.cumsum(axis=1)
        at, end = u[:, 0] * reached[:, -1], reached[rows, bins]
        selected = (end - self.p[rows, bins] - tolerance <= at) & (at <= end + tolerance)
        drawn: Bool = selected & (np.abs(self._place(bins, u[:, 1]) - actions) <= _ROUNDING * np.abs(actions))
        return drawn

    def nodes(self) -> Iterator[tuple[Actions, Float64]]:
        """The middle of each bin, weighted by its probability."""
        for b in range(self.p.shape[1]):
            lower, upper = self._ends(np.full(len(self.p), b))
            yield np.where(upper > lower, (lower + upper) / 2, lower), self.p[:, b]

    def _place(self, bins: NDArray[np.int64], u: Float64) -> Float64:
        lower, upper = self._ends(bins)
        place: Float64 = lower + u * (upper - lower)
        return np.where(place < upper, place, lower)  # rounding may reach the upper end, which is the next bin's

    def _ends(self, bins: NDArray[np.int64]) -> tuple[Float64, Float64]:
        rows = np.arange(len(bins)) if len(self.lower) > 1 else np.zeros(len(bins), np.int64)
        return self.lower[rows, bins], self.upper[rows, bins]

    def _bins(self, actions: Actions) -> NDArray[np.int64]:
        """The bin of each number: the last that starts at or below it and of which something is allowed."""
        starts = (self.lower <= np.asarray(actions)[:, None]) & (self.upper > self.lower)
        count = starts.shape[1]
        found: NDArray[np.int64] = count - 1 - np.argmax(starts[:, ::-1], axis=1)
        return found
