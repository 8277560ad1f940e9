"""An estimate with its intervals, as data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.evaluate.confidence_sequences import asymptotic, weighted
from potstill.evaluate.intervals import Interval, bernstein, bootstrap, normal
from potstill.evaluate.terms import Terms
from potstill.keys import Key
from potstill.spaces.influence import Parts

#: Intervals that can be asked for; the anytime-valid one is always there.
IntervalName: TypeAlias = Literal["normal", "bootstrap", "bernstein", "exact"]
_UNDEFINED = "no row of the log has an action that the target takes"
#: Terms may lie outside of their bounds by this share of them, from rounding.
_ROUNDING = 1e-9


class OffPolicyEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """What an estimator says.

    Attributes:
        estimator: its name.
        value: None if the log says nothing of the target.
        standard_error: None if there are fewer than two rows.
        intervals: as asked for, by name.
        anytime: the interval that holds however often one looks.
        parameter: the clipping level, threshold or shrinkage, if the estimator has one; None also if it is infinite.
        note: what a reader should know; mostly empty.
    """

    estimator: str
    value: float | None
    standard_error: float | None = None
    intervals: dict[str, Interval] = {}
    anytime: Interval | None = None
    parameter: float | None = None
    note: str = ""


@dataclass(frozen=True)
class IntervalOptions:
    """How intervals are made.

    Attributes:
        names: of the intervals.
        level: their confidence.
        low: the smallest possible reward, if known.
        high: the largest.
        largest: the largest weight that a row could have had.
        caveat: what has to be true for that.
        key: of bootstraps.
    """

    names: tuple[IntervalName, ...]
    level: float
    low: float | None
    high: float | None
    largest: float
    caveat: str
    key: Key


@dataclass(frozen=True, eq=False)
class PointEstimate:
    """An estimate before its intervals are made.

    Attributes:
        estimator: its name.
        parts: what the value is made of.
        terms: what those were made of; None for a difference.
        bounds: of the terms whose mean is the value; or why there are none.
    """

    estimator: str
    parts: Parts
    terms: Terms | None
    bounds: tuple[float, float] | str

    @classmethod
    def of(cls, estimator: str, parts: Parts, terms: Terms, options: IntervalOptions) -> PointEstimate:
        """The value of a target."""
        return cls(estimator, parts, terms, _bounds(parts, options))

    def __sub__(self, other: PointEstimate) -> PointEstimate:
        """By how much this is more than another value on the same rows."""
        parts = Parts(base=self.parts.influence - other.parts.influence)
        return PointEstimate(self.estimator, parts, None, _bounds_of_difference(self.bounds, other.bounds))

    def where(self, rows: NDArray[np.bool_]) -> PointEstimate:
        """The same for some rows, by mask."""
        terms = None if self.terms is None else self.terms.where(rows)
        return PointEstimate(self.estimator, self.parts.where(rows), terms, self.bounds)

    def estimate(self, options: IntervalOptions, note: str = "") -> OffPolicyEstimate:
        """With its intervals."""
        value, parameter = self.parts.value, self.parts.parameter
        if math.isnan(value):
            return OffPolicyEstimate(estimator=self.estimator, value=None, note=_UNDEFINED)
        sd, rows = self._spread()
        return OffPolicyEstimate(
            estimator=self.estimator,
            value=value,
            standard_error=sd / math.sqrt(rows) if rows > 1 else None,
            intervals={name: _MAKERS[name](self, options) for name in options.names},
            anytime=asymptotic(value, sd, rows, options.level),
            parameter=None if parameter is None or math.isinf(parameter) else parameter,
            note=note,
        )

    def _spread(self) -> tuple[float, int]:
        influence = self.parts.influence
        return float(np.std(influence, ddof=1)) if len(influence) > 1 else 0.0, len(influence)


def _bounds(parts: Parts, options: IntervalOptions) -> tuple[float, float] | str:
    """Of base + weight * (reward - prediction), where predictions are rewards as well, or of weight * reward."""
    low, high = options.low, options.high
    if low is None or high is None:
        return "the problem states no bounds of the reward"
    if parts.denominator is not None:
        return "there is none for a ratio"
    weight = min(parts.largest, options.largest)
    if parts.base is None:
        return weight * min(low, 0.0), weight * max(high, 0.0)
    return low - weight * (high - low), high + weight * (high - low)


def _bounds_of_difference(
    one: tuple[float, float] | str, other: tuple[float, float] | str
) -> tuple[float, float] | str:
    if isinstance(one, str):
        return one
    return other if isinstance(other, str) else (one[0] - other[1], one[1] - other[0])


def _normal(point: PointEstimate, options: IntervalOptions) -> Interval:
    return normal(point.parts, options.level)


def _bootstrap(point: PointEstimate, options: IntervalOptions) -> Interval:
    return bootstrap(point.parts, options.level, options.key.child(point.estimator))


def _bernstein(point: PointEstimate, options: IntervalOptions) -> Interval:
    if isinstance(point.bounds, str):
        return _nothing(options, "bernstein", point.bounds)
    if point.estimator == "dm":
        return _nothing(options, "bernstein", "it would promise what a wrong reward model does not keep")
    low, high = point.bounds
    slack = _ROUNDING * (high - low)
    made = bernstein(point.parts.influence, low - slack, high + slack, options.level)
    return msgspec.structs.replace(made, note=made.note or options.caveat) if point.parts.largest else made


def _exact(point: PointEstimate, options: IntervalOptions) -> Interval:
    if point.estimator != "ips" or point.terms is None:
        return _nothing(options, "exact", "only ips has one")
    if options.low is None or options.high is None:
        return _nothing(options, "exact", "the problem states no bounds of the reward")
    terms = point.terms
    lows, highs = weighted(terms.weight, terms.reward, options.low, options.high, options.level)
    return Interval(float(lows[-1]), float(highs[-1]), options.level, "exact")


def _nothing(options: IntervalOptions, method: str, why: str) -> Interval:
    return Interval(-math.inf, math.inf, options.level, method, why)


_MAKERS: dict[IntervalName, Callable[[PointEstimate, IntervalOptions], Interval]] = {
    "normal": _normal,
    "bootstrap": _bootstrap,
    "bernstein": _bernstein,
    "exact": _exact,
}
#: All intervals that can be asked for.
INTERVALS = tuple(_MAKERS)
