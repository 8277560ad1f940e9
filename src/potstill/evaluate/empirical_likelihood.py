"""Empirical likelihood: intervals of a mean that hold for rare events, skewed weights and bounded rewards.

Owen 1988, "Empirical likelihood ratio confidence intervals for a single functional". The interval has every mean that a
reweighting of the rows can have whose likelihood ratio is not significant. Where weights are equal and rewards are 0 or
1, that is the likelihood-ratio interval of a binomial proportion.

Rows alone cannot say how large an event would be that happened not to be logged: without events, their interval is a
point. So half a row is added at each end, with the reward that an unseen row could have had (for weighted rewards as in
Karampatziakis, Langford & Mineiro 2020, "Empirical likelihood for contextual bandits", who add the ends of the
range). Without events in n effective rows, the interval of nominal 95 % then reaches up to 3.4/n times the range; exact
binomial intervals do to 3.7/n two-sided and 3.0/n (the "rule of three") one-sided.

Half a row was chosen by a simulation of ips and snips in 30 settings with 34 actions, 400 logs each: coverage was 92 to
99 % with half a row, 93 to 99 % and wider with a whole one, and down to 53 % with none. `benchmarks/coverage_events.py`
measures the coverage of what was chosen.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from potstill.evaluate.intervals import NO_WEIGHT, Interval, Values, few_rows, two_sided

#: Rows that are added at the end that is sought.
UNSEEN_ROWS = 0.5
#: Number of bins that many rows are summarised in, and number of steps of the bisection.
BINS, _STEPS = 1024, 60
#: Rows that are put in bins at once: they fit in the processor's cache.
_AT_ONCE = 1 << 15
#: Range of the bisection, in ranges of the values.
_NEAREST, _FARTHEST = 1e-9, 1e9


class Unseen(NamedTuple):
    """What an unseen row could have contributed to an estimate.

    Attributes:
        low: Contribution of a row with the smallest reward.
        high: Contribution of a row with the largest reward.
    """

    low: float
    high: float


def likelihood(values: Values, unseen: Unseen | None, level: float) -> Interval:
    """The empirical likelihood interval of a mean.

    Args:
        values: Independent terms whose mean is the estimate, float64[N].
        unseen: Contribution of an unseen row; None if nothing is known about it.
        level: Confidence level.
    """
    if len(values) < 2 or not math.isfinite(mean := float(values.mean())):
        return Interval(-math.inf, math.inf, level, "likelihood", few_rows(len(values)) or NO_WEIGHT)
    points, counts = summarised(values)
    low, high = (mean, mean) if unseen is None else unseen
    critical = two_sided(level) ** 2
    lower = -_highest(np.append(-points, -min(low, mean)), np.append(counts, UNSEEN_ROWS), critical)
    upper = _highest(np.append(points, max(high, mean)), np.append(counts, UNSEEN_ROWS), critical)
    return Interval(min(lower, mean), max(upper, mean), level, "likelihood")


def unseen_row(values: Values, rewards: Values, sides: tuple[Values, ...], ends: tuple[float, float]) -> Unseen | None:
    """What a row could have contributed that one of the compared policies had decided; None if none decides any.

    The row is drawn as the policy draws: in proportion to its weights.

    Args:
        values: Contribution of each row to the estimate, float64[N].
        rewards: Reward of each row, float64[N].
        sides: By how much the reward of each row counts, float64[N]: of one policy, or of two whose difference is
            estimated.
        ends: Smallest and largest reward that an unseen row could have had.
    """
    totals = [float(side.sum()) for side in sides]
    if not any(totals):
        return None
    if len(sides) == 1:
        return _unseen_of_one(values, rewards, sides[0], ends)
    lowest, highest = _lowest_and_highest(values, rewards, sides[0] - sides[1], ends)
    drawing = [side / total for side, total in zip(sides, totals, strict=True) if total]
    return Unseen(min(float(side @ lowest) for side in drawing), max(float(side @ highest) for side in drawing))


def _unseen_of_one(values: Values, rewards: Values, side: Values, ends: tuple[float, float]) -> Unseen:
    """The same for one policy, by sums of products: no reward of a row lowers its contribution."""
    low, high = ends
    squares = side * side
    with_zero, per_reward = side @ values - squares @ rewards, float(squares.sum())
    total = float(side.sum())
    return Unseen(float(with_zero + low * per_reward) / total, float(with_zero + high * per_reward) / total)


def _lowest_and_highest(
    values: Values, rewards: Values, move: Values, ends: tuple[float, float]
) -> tuple[Values, Values]:
    """Each row's contribution with the reward that makes it smallest, and largest."""
    with_low, span = values + move * (ends[0] - rewards), move * (ends[1] - ends[0])
    return with_low + np.minimum(span, 0.0), with_low + np.maximum(span, 0.0)


def summarised(values: Values) -> tuple[Values, Values]:
    """Points and counts with the same mean and variance as many values, in two points for each of equally wide bins."""
    lowest, highest = float(values.min()), float(values.max())
    if len(values) <= 2 * BINS or lowest == highest:
        return values, np.ones(len(values))
    moments = np.zeros((3, BINS))
    for start in range(0, len(values), _AT_ONCE):
        moments += _bin_moments(values[start : start + _AT_ONCE], lowest, highest)
    counts, sums, squares = moments[:, moments[0] > 0]
    means = sums / counts
    spread = np.sqrt(np.maximum(squares / counts - means * means, 0.0))
    return lowest + np.concatenate([means - spread, means + spread]), np.tile(counts / 2, 2)


def _bin_moments(values: Values, lowest: float, highest: float) -> Values:
    """Counts, sums and sums of squares of the distances to the lowest value in each bin, float64[3, BINS]."""
    above = values - lowest
    places = np.minimum((above * (BINS / (highest - lowest))).astype(np.intp), BINS - 1)
    return np.stack([np.bincount(places, by, BINS) for by in (None, above, above * above)])


def _highest(points: Values, counts: Values, critical: float) -> float:
    """The largest mean of a reweighting whose likelihood ratio statistic is at most `critical`.

    Weights of that reweighting are proportional to t/(t + d), where d is the distance to the largest point. The
    statistic falls with t, so one bisection finds it.
    """
    top = float(points.max())
    distances, total = top - points, float(counts.sum())
    span = float(distances.max())
    if not span:
        return top
    near, far = math.log(_NEAREST * span), math.log(_FARTHEST * span)
    for _ in range(_STEPS):
        middle = (near + far) / 2
        shares = 1 / (1 + distances * math.exp(-middle))
        statistic = 2 * float(total * math.log(counts @ shares / total) - counts @ np.log(shares))
        near, far = (middle, far) if statistic > critical else (near, middle)
    weights = counts / (1 + distances * math.exp(-far))
    return top - float(weights @ distances / weights.sum())
