"""Off-policy estimates with their intervals, as data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.evaluate.confidence_sequences import asymptotic, weighted
from potstill.evaluate.diagnostics import ENOUGH_EVENTS, usual_reward
from potstill.evaluate.empirical_likelihood import likelihood, unseen_row
from potstill.evaluate.intervals import NO_WEIGHT, Interval, bernstein, bootstrap, normal
from potstill.evaluate.terms import Terms
from potstill.keys import Key
from potstill.problem import Reward
from potstill.spaces import Parts

Values: TypeAlias = NDArray[np.float64]
#: Intervals on request; the anytime-valid one is always computed. The first one is the default.
IntervalName: TypeAlias = Literal["likelihood", "normal", "bootstrap", "bernstein", "exact"]
_UNDEFINED = "no row of the log has an action that the target takes"
#: Rounding may put terms outside their bounds by this share of the range.
_ROUNDING = 1e-9


class OffPolicyEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The estimated value of a target by one estimator.

    Attributes:
        estimator: Name of the estimator.
        value: Estimated reward per decision; None if the log says nothing about the target.
        standard_error: Standard error; None if there are fewer than two rows.
        intervals: Requested intervals, by name.
        anytime: Anytime-valid interval, which holds for any number of looks.
        parameter: Clipping level, threshold or shrinkage, if the estimator has one and it is finite.
        note: Caveat of the estimate; usually empty.
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
    """How intervals are computed.

    Attributes:
        names: Names of the intervals.
        level: Confidence level.
        low: Smallest possible reward, if known.
        high: Largest possible reward, if known.
        largest: Largest weight that a row could have had; infinite if there is no bound.
        ends: Smallest and largest reward that an unseen row could have had; None if nothing is known.
        caveat: Assumption behind `largest`.
        key: Key of bootstraps.
    """

    names: tuple[IntervalName, ...]
    level: float
    low: float | None
    high: float | None
    largest: float
    ends: tuple[float, float] | None
    caveat: str
    key: Key

    @classmethod
    def default(cls, reward: Values, stated: Reward, level: float) -> IntervalOptions:
        """Options of the default interval alone.

        Args:
            reward: Rewards of the log, float64[N].
            stated: The problem's reward, with its range.
            level: Confidence level.
        """
        ends = reward_ends(reward, stated)
        return cls(("likelihood",), level, stated.low, stated.high, math.inf, ends, "", Key(0))


@dataclass(frozen=True, eq=False)
class PointEstimate:
    """An estimate without intervals.

    Attributes:
        estimator: Name of the estimator.
        parts: Parts of the value.
        terms: Terms that the parts came from; None for a difference, and for parts of a log.
        bounds: Bounds of the terms whose mean is the value, or the reason why there are none.
        reward: Reward of each row, float64[N].
        sides: By how much each row's reward counts, float64[N]; one for a value, two for a difference, and none if the
            estimate does not depend on rewards of its own rows.
        is_difference: Whether it is a difference of two values.
    """

    estimator: str
    parts: Parts
    terms: Terms | None
    bounds: tuple[float, float] | str
    reward: Values
    sides: tuple[Values, ...]
    is_difference: bool = False

    @classmethod
    def of(cls, estimator: str, parts: Parts, terms: Terms, options: IntervalOptions) -> PointEstimate:
        """The value of a target."""
        sides = () if parts.sensitivity is None else (parts.sensitivity,)
        return cls(estimator, parts, terms, _bounds(parts, options), terms.reward, sides)

    def __sub__(self, other: PointEstimate) -> PointEstimate:
        """The difference to another value on the same rows."""
        parts = Parts(base=self.parts.influence - other.parts.influence)
        bounds = _bounds_of_difference(self.bounds, other.bounds)
        sides = (*self.sides, *other.sides) if self.sides and other.sides else ()
        return PointEstimate(self.estimator, parts, None, bounds, self.reward, sides, is_difference=True)

    @classmethod
    def pooled(cls, estimator: str, parts: Sequence[Parts], rewards: Sequence[Values]) -> PointEstimate:
        """The value of a target, or of several in turn, over consecutive parts of a log.

        Args:
            estimator: Name of the estimator.
            parts: Parts of the estimate on each part of the log.
            rewards: Rewards of each part of the log, float64[N].
        """
        influence = np.concatenate([one.influence for one in parts])
        known = [side for one in parts if (side := one.sensitivity) is not None]
        sides = (np.concatenate(known),) if len(known) == len(parts) else ()
        bounds = "there is none for parts of a log"
        return cls(estimator, Parts(base=influence), None, bounds, np.concatenate(rewards), sides)

    def where(self, rows: NDArray[np.bool_]) -> PointEstimate:
        """The estimate on some rows, by mask."""
        terms = None if self.terms is None else self.terms.where(rows)
        parts, reward = self.parts.where(rows), self.reward[rows]
        sides = tuple(side[rows] for side in self.sides)
        return PointEstimate(self.estimator, parts, terms, self.bounds, reward, sides, self.is_difference)

    def with_intervals(self, options: IntervalOptions, note: str = "") -> OffPolicyEstimate:
        """The estimate with its intervals."""
        value, parameter = self.parts.value, self.parts.parameter
        if math.isnan(value):
            return OffPolicyEstimate(estimator=self.estimator, value=None, note=_UNDEFINED)
        sd, rows = self._spread()
        default = _likelihood(self, options)
        return OffPolicyEstimate(
            estimator=self.estimator,
            value=value,
            standard_error=sd / math.sqrt(rows) if rows > 1 else None,
            intervals={
                name: default if name == "likelihood" else _MAKERS[name](self, options) for name in options.names
            },
            anytime=_hull(asymptotic(value, sd, rows, options.level), default),
            parameter=None if parameter is None or math.isinf(parameter) else parameter,
            note=note,
        )

    def _spread(self) -> tuple[float, int]:
        influence = self.parts.influence
        return float(np.std(influence, ddof=1)) if len(influence) > 1 else 0.0, len(influence)


def reward_ends(reward: Values, stated: Reward) -> tuple[float, float] | None:
    """Smallest and largest reward that an unseen row could have had; None if nothing is known.

    These are the ends of the rewards in the log. If few rows differ from the usual reward, these ends say little, and
    the stated range counts; a reward that is always 0 or always 1 has the range from 0 to 1 if none is stated.
    """
    low, high = float(reward.min()), float(reward.max())
    usual = usual_reward(reward, np.ones_like(reward))
    if usual is not None and np.count_nonzero(reward != usual) < ENOUGH_EVENTS:
        low, high = low if stated.low is None else stated.low, high if stated.high is None else stated.high
    if low == high and low in (0.0, 1.0):
        return 0.0, 1.0
    return (low, high) if low < high else None


def _bounds(parts: Parts, options: IntervalOptions) -> tuple[float, float] | str:
    """Bounds of base + weight · (reward - prediction), or of weight · reward; predictions have the reward's bounds."""
    low, high = options.low, options.high
    if low is None or high is None:
        return "the problem states no bounds of the reward"
    if parts.denominator is not None:
        return "there is none for a ratio"
    weight = min(parts.largest, options.largest)
    if math.isinf(weight):
        return "importance weights of densities have no bound"
    if parts.base is None:
        return weight * min(low, 0.0), weight * max(high, 0.0)
    return low - weight * (high - low), high + weight * (high - low)


def _bounds_of_difference(
    one: tuple[float, float] | str, other: tuple[float, float] | str
) -> tuple[float, float] | str:
    if isinstance(one, str):
        return one
    return other if isinstance(other, str) else (one[0] - other[1], one[1] - other[0])


def _likelihood(point: PointEstimate, options: IntervalOptions) -> Interval:
    """The default interval, within the range of rewards if the problem states one."""
    unseen = unseen_row(point.parts.influence, point.reward, point.sides, options.ends) if options.ends else None
    if point.sides and options.ends and unseen is None:
        return _nothing(options, "likelihood", NO_WEIGHT)
    if point.sides and not options.ends:
        return _nothing(options, "likelihood", "all rewards are the same, and the problem states no range of rewards")
    made = likelihood(point.parts.influence, unseen, options.level)
    low, high = _range(options, difference=point.is_difference)
    value = point.parts.value
    return msgspec.structs.replace(made, low=min(max(made.low, low), value), high=max(min(made.high, high), value))


def _range(options: IntervalOptions, *, difference: bool) -> tuple[float, float]:
    """Range of all possible values, or of differences between two."""
    low = -math.inf if options.low is None else options.low
    high = math.inf if options.high is None else options.high
    return (low - high, high - low) if difference else (low, high)


def _hull(anytime: Interval, default: Interval) -> Interval:
    """The anytime-valid interval, where it reaches less far than that of one look, with the ends of that one."""
    low, high = min(anytime.low, default.low), max(anytime.high, default.high)
    return msgspec.structs.replace(anytime, low=low, high=high)


def _normal(point: PointEstimate, options: IntervalOptions) -> Interval:
    return normal(point.parts, options.level)


def _bootstrap(point: PointEstimate, options: IntervalOptions) -> Interval:
    return bootstrap(point.parts, options.level, options.key.child(point.estimator))


def _bernstein(point: PointEstimate, options: IntervalOptions) -> Interval:
    if isinstance(point.bounds, str):
        return _nothing(options, "bernstein", point.bounds)
    if point.estimator == "dm":
        return _nothing(options, "bernstein", "it would not cover the error of the reward model")
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
    "likelihood": _likelihood,
    "normal": _normal,
    "bootstrap": _bootstrap,
    "bernstein": _bernstein,
    "exact": _exact,
}
#: Names of all intervals on request.
INTERVALS = tuple(_MAKERS)
