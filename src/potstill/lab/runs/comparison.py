"""Paired comparison of two algorithms on common trials: same requests and noise, so that chance cancels.

The ratio of two mean totals gets Fieller's interval: all ρ for which the mean of yᵢ - ρ·xᵢ over trials does not differ
significantly from 0 by a t-test. It is exact for normal totals at any number of trials, uses the pairing of x and y,
and does not exist where the denominator itself does not differ significantly from 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from potstill.evaluate import fieller as ratio_interval

#: Fewest trials for a verdict: with fewer, the standard error itself is too noisy.
LEAST_TRIALS = 5
#: An interval that reaches further than this either way is not "no difference".
WIDE = 0.2
CONFIDENCE = 0.95

Measure = Literal["regret", "reward"]


class Estimate(msgspec.Struct, frozen=True):
    """A mean over trials.

    Attributes:
        mean: Mean over trials.
        two_se: Two standard errors of the mean; None for a single trial.
        trials: Number of trials.
    """

    mean: float
    two_se: float | None
    trials: int

    @classmethod
    def of(cls, values: ArrayLike) -> Estimate:
        """Estimate from one value per trial."""
        x = np.asarray(values, np.float64)
        two_se = 2 * float(x.std(ddof=1)) / math.sqrt(len(x)) if len(x) > 1 else None
        return cls(float(x.mean()), two_se, len(x))


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Difference of one algorithm from another, paired by trial.

    Attributes:
        difference: Mean of (one minus other), with two standard errors.
        ratio: Ratio of the two means, one over other; None if the other's mean is 0.
        low, high: 95 % interval of the ratio, by Fieller with t quantiles; None where there is none.
        outside: Whether the difference is more than two standard errors from 0; None with too few trials.
        verdict: Verdict in words.
    """

    difference: Estimate
    ratio: float | None
    low: float | None
    high: float | None
    outside: bool | None
    verdict: str

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes a tie."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high

    @classmethod
    def of(cls, one: ArrayLike, other: ArrayLike, measure: Measure, name: str = "IL") -> Comparison:
        """Compare totals of `one`, called `name`, with those of `other`, one of each per trial."""
        y, x = np.asarray(one, np.float64), np.asarray(other, np.float64)
        difference = Estimate.of(y - x)
        ratio = float(y.mean() / x.mean()) if x.mean() else None
        low, high = fieller(y, x) or (None, None)
        outside = _outside(difference)
        cost = _Cost.of(ratio, low, high, measure)
        return cls(
            difference=difference,
            ratio=ratio,
            low=low,
            high=high,
            outside=outside,
            verdict=_verdict(difference, outside, cost, measure, name),
        )


def fieller(y: ArrayLike, x: ArrayLike, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """The interval of mean(y) / mean(x) for pairs; None where there is none, as for a single pair."""
    pairs = np.stack([np.asarray(x, np.float64), np.asarray(y, np.float64)])
    n = pairs.shape[1]
    if n < 2:
        return None
    mean_x, mean_y = pairs.mean(axis=1)
    t = stats.t.ppf((1 + confidence) / 2, n - 1)
    (xx, xy), (_, yy) = np.cov(pairs) / n
    return ratio_interval(float(mean_y), float(mean_x), (float(yy), float(xx)), float(xy), float(t))


def expected_by_chance(comparisons: Sequence[Comparison]) -> float:
    """Expected number outside two standard errors if no pair of algorithms differed, for normal differences."""
    counted = [one.difference.trials for one in comparisons if one.outside is not None]
    return float(sum(2 * stats.t.sf(2, trials - 1) for trials in counted))


def _outside(difference: Estimate) -> bool | None:
    if difference.two_se is None or difference.trials < LEAST_TRIALS:
        return None
    return abs(difference.mean) > difference.two_se


class _Cost(msgspec.Struct, frozen=True):
    """Relative cost: positive is worse, negative is better."""

    share: float
    low: float
    high: float

    @classmethod
    def of(cls, ratio: float | None, low: float | None, high: float | None, measure: Measure) -> _Cost | None:
        if ratio is None or low is None or high is None:
            return None
        if measure == "regret":
            return cls(ratio - 1, low - 1, high - 1)
        return cls(1 - ratio, 1 - high, 1 - low)


def _verdict(difference: Estimate, outside: bool | None, cost: _Cost | None, measure: Measure, name: str) -> str:
    if outside is None:
        return f"too few trials for a verdict: {difference.trials}, and {LEAST_TRIALS} are needed"
    if not outside:
        return _within(difference, cost)
    worse = (difference.mean > 0) == (measure == "regret")
    verb = "costs" if worse else "gains"
    if cost is None:
        return f"{name} {verb}: outside two standard errors, but without an interval for the ratio"
    low, high = (cost.low, cost.high) if worse else (-cost.high, -cost.low)
    if low <= 0:
        share, tie = _percent(abs(cost.share)), "the 95\N{NO-BREAK SPACE}% interval includes a tie"
        return f"{name} {verb} {share}: just outside two standard errors; {tie}"
    return f"{name} {verb} {_span(low, high)}: outside two standard errors"


def _within(difference: Estimate, cost: _Cost | None) -> str:
    if not difference.mean and not difference.two_se:
        return "equal in every trial"
    if cost is None:
        return "inconclusive: within two standard errors, which are as large as the mean"
    if max(abs(cost.low), abs(cost.high)) > WIDE:
        span = _span(cost.low, cost.high)
        return f"inconclusive: within two standard errors, but the interval allows a cost of {span}"
    return "no difference found: within two standard errors"


def _span(low: float, high: float) -> str:
    return f"{100 * low:.1f} to {_percent(high)}".replace("-", "−")


def _percent(share: float) -> str:
    # The space before the sign does not break.
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%".replace("-", "−")
