"""A stretch of the series at one resolution, for a chart."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import msgspec

from potstill.summaries.cells import DecisionCell, ObservationCell, RewardCell
from potstill.summaries.series import (
    DAY,
    HOUR,
    MINUTE,
    Bounds,
    DecisionSummary,
    ObservationSummary,
    RewardSummary,
    Summary,
)
from potstill.summaries.sums import Estimate, Sums, mean_of, off_policy

C = TypeVar("C", DecisionCell, RewardCell, ObservationCell)
#: Points of a chart at most.
POINTS = 160
_WIDTHS = (MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 6 * HOUR, DAY, 7 * DAY, 28 * DAY, 364 * DAY)
#: Rows below which no mean is shown: its interval would be meaningless.
FEWEST = 2


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One point of the charts.

    Attributes:
        time: Its start, in microseconds since 1970, UTC.
        decisions: Decisions per minute.
        rewards: Rewards per minute.
        modes: Number of decisions by mode.
        actions: Number of decisions by action.
        agreement: Share of decisions in mode apprentice in which the policy agrees; None without such decisions.
        reward: Mean of what is maximised over the joined decisions, with its interval.
        uniform: The same for uniformly random actions, off-policy.
    """

    time: int
    decisions: float
    rewards: float
    modes: dict[str, int]
    actions: dict[str, int]
    agreement: float | None
    reward: Estimate
    uniform: Estimate


class Span(NamedTuple):
    """A stretch of time.

    Attributes:
        start: Where it begins, in microseconds since 1970, UTC.
        end: Where it ends.
        width: Width of a point.
    """

    start: int
    end: int
    width: int

    @classmethod
    def of(cls, now: int, hours: float | None, decisions: DecisionSummary, finest: int = 0) -> Span:
        """The last hours, or everything; what is long past is shown where it ended.

        Args:
            now: The present.
            hours: How much; None for everything.
            decisions: The decisions.
            finest: Time up to which other series reach, which sets the width of their cells.
        """
        oldest = next(iter(decisions.cells), now)
        length = max(now - oldest, HOUR) if hours is None else round(hours * HOUR)
        newest = decisions.newest
        end = now if not decisions.cells or newest >= now - length else newest + 1
        bounds = Bounds.of(max(newest, finest))
        least = bounds.width(end - length)
        width = next((one for one in _WIDTHS if one >= least and length / one <= POINTS), _WIDTHS[-1])
        return cls((end - length) // width * width, end, width)

    def place(self, time: int) -> int:
        """Start of the point that holds a time."""
        return time // self.width * self.width


def points(
    span: Span, decisions: DecisionSummary, rewards: RewardSummary, observations: ObservationSummary
) -> list[Point]:
    """Points of a stretch of time, oldest first; those without any row are left out."""
    made = _placed(span, decisions, DecisionCell())
    came = _placed(span, rewards, RewardCell())
    joined = _placed(span, observations, ObservationCell())
    times = sorted({*made, *came, *joined})
    return [
        _point(span, time, made.get(time, DecisionCell()), came.get(time), joined.get(time, ObservationCell()))
        for time in times
    ]


def total_of(span: Span, observations: ObservationSummary) -> ObservationCell:
    """All joined decisions of a stretch of time."""
    return sum((cell for start, _, cell in observations.series(span.start) if start <= span.end), ObservationCell())


def _placed(span: Span, summary: Summary[C], empty: C) -> dict[int, C]:
    """Cells by the points that hold them."""
    found: dict[int, C] = {}
    for start, _, cell in summary.series(span.start):
        if start <= span.end:
            place = span.place(start)
            found[place] = found.get(place, empty) + cell
    return found


def _point(span: Span, time: int, made: DecisionCell, came: RewardCell | None, joined: ObservationCell) -> Point:
    minutes = (min(span.end, time + span.width) - time) / MINUTE or 1.0
    return Point(
        time=time,
        decisions=made.decisions / minutes,
        rewards=0.0 if came is None else came.rewards.n / minutes,
        modes=made.modes,
        actions=made.actions,
        agreement=made.agreed / made.compared if made.compared else None,
        reward=_mean(joined.joined),
        uniform=off_policy(joined.uniform, joined.exact) if joined.exact.n >= FEWEST else Estimate(),
    )


def _mean(sums: Sums) -> Estimate:
    return mean_of(sums) if sums.n >= FEWEST else Estimate(rows=sums.n)
