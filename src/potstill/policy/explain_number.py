"""Attribution of a number's distribution to features, by ablation, as in `potstill.policy.explain`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import UnsupportedSpace, shown
from potstill.policy.explain import ablated
from potstill.policy.policy import Policy
from potstill.spaces import HistogramDistribution

Float64 = NDArray[np.float64]
#: Most ranges that a distribution is summarised by.
_RANGES = 16
#: Ends of the middle 80 %.
_TAILS = (0.1, 0.9)


class NumberEffect(msgspec.Struct, frozen=True):
    """Effect of one feature.

    Attributes:
        feature: Name of the feature.
        value: Value in the context; None if it was missing.
        change: Expected number minus that at the feature's mean.
        moved: Wasserstein distance between the two distributions, in units of the number: how far numbers move.
    """

    feature: str
    value: object
    change: float
    moved: float


class NumberRange(msgspec.Struct, frozen=True):
    """A range of numbers.

    Attributes:
        low: Its smallest number.
        high: Its largest number.
        probability: Probability of a number between them.
    """

    low: float
    high: float
    probability: float


class NumberExplanation(msgspec.Struct, frozen=True):
    """Explanation of the distribution of a number in a context.

    Attributes:
        expected: Expected number.
        low: 10 % of the numbers are below.
        high: 10 % of the numbers are above.
        average: Expected number at the mean of every feature.
        ranges: At most 16 ranges of all allowed numbers, ascending.
        effects: Effect of each feature, strongest first.
    """

    expected: float
    low: float
    high: float
    average: float
    ranges: list[NumberRange]
    effects: list[NumberEffect]


def explain_number(
    policy: Policy,
    context: Mapping[str, object],
    *,
    eligible: Sequence[float] | None = None,
    floor: float | None = None,
) -> NumberExplanation:
    """Explain the distribution of a number in a context, by replacing one feature at a time."""
    variants = ablated(policy, context)
    space = policy.problem.actions
    allowed = None if eligible is None else np.repeat(space.restrict(eligible).allowed, len(variants), axis=0)
    found = policy.distribution(variants, eligible=allowed, floor=floor)
    if not isinstance(found, HistogramDistribution):
        raise UnsupportedSpace(f"an explanation needs a list of actions or a number, got {shown(space)}")
    edges, reached = _cumulative(found)
    means = ((edges[1:] + edges[:-1]) / 2 * np.diff(reached)).sum(axis=1)
    low, high = (float(end) for end in np.interp(_TAILS, reached[0], edges))
    effects = [
        NumberEffect(feature.name, context.get(feature.name), float(means[0] - means[i]), _distance(edges, *pair))
        for i, feature in enumerate(policy.problem.context, start=2)
        if (pair := (reached[0], reached[i]))
    ]
    effects.sort(key=lambda effect: -effect.moved)
    return NumberExplanation(float(means[0]), low, high, float(means[1]), _ranges(edges, reached[0]), effects)


def _cumulative(found: HistogramDistribution) -> tuple[Float64, Float64]:
    """Edges of the allowed parts of bins, float64[B + 1], and the probability below each, float64[N, B + 1]."""
    allowed = found.upper[0] > found.lower[0]
    edges = np.append(found.lower[0][allowed], found.upper[0][allowed][-1])
    reached = np.pad(found.p[:, allowed].cumsum(axis=1), ((0, 0), (1, 0)))
    return edges, reached / reached[:, -1:]


def _distance(edges: Float64, one: Float64, other: Float64) -> float:
    """W₁: the integral of the distance between two distribution functions that are linear within bins."""
    gap = one - other
    start, end = gap[:-1], gap[1:]
    crossing = start * end < 0
    size = np.abs(start) + np.abs(end)
    mean = np.where(crossing, (start**2 + end**2) / np.where(crossing, 2 * size, 1.0), size / 2)
    return float((mean * np.diff(edges)).sum())


def _ranges(edges: Float64, reached: Float64) -> list[NumberRange]:
    """Groups of bins."""
    at = np.unique(np.linspace(0, len(edges) - 1, min(len(edges), _RANGES + 1)).round().astype(int))
    ends, shares = edges[at].tolist(), np.diff(reached[at]).tolist()
    return [NumberRange(low, high, share) for (low, high), share in zip(pairwise(ends), shares, strict=True)]
