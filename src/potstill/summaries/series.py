"""A series of cells over time: minutes for the last hours, hours for the last week, days before that.

Its size does not depend on the number of decisions. Cells that grow old are merged into coarser ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

import msgspec

from potstill.summaries.cells import DecisionCell, ObservationCell, RewardCell, merged
from potstill.summaries.sums import Sums

#: Microseconds.
SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86400 * SECOND
#: How far back minutes and hours are kept.
MINUTES_KEPT, HOURS_KEPT = 6 * HOUR, 14 * DAY
#: Format of the files; another one is not read, and the summary is made again at the next commit of the table.
FORMAT = 1
#: Latest versions with totals of their own.
VERSIONS = 200

C = TypeVar("C", DecisionCell, RewardCell, ObservationCell)


class Bounds(NamedTuple):
    """From when on rows are kept by the minute and by the hour, in microseconds since 1970."""

    minutes: int
    hours: int

    @classmethod
    def of(cls, newest: int) -> Bounds:
        """Bounds for a series that reaches up to a time; at whole hours and days, so that no two cells overlap."""
        return cls((newest - MINUTES_KEPT) // HOUR * HOUR, (newest - HOURS_KEPT) // DAY * DAY)

    def width(self, time: int) -> int:
        """Width of the cell that holds a time."""
        return MINUTE if time >= self.minutes else HOUR if time >= self.hours else DAY

    def start(self, time: int) -> int:
        """Start of the cell that holds a time."""
        width = self.width(time)
        return time // width * width


class VersionTotal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Decisions that a version has taken, or what they earned.

    Attributes:
        first: Time of the first one, in microseconds since 1970, UTC.
        last: Time of the last one.
        actions: Numbers by action; only of decisions.
        rewards: Rewards; only of observations.
    """

    first: int
    last: int
    actions: dict[str, int] = {}
    rewards: Sums = Sums()

    def __add__(self, other: VersionTotal) -> VersionTotal:
        return VersionTotal(
            first=min(self.first, other.first),
            last=max(self.last, other.last),
            actions=merged(self.actions, other.actions),
            rewards=self.rewards + other.rewards,
        )


class Summary(msgspec.Struct, Generic[C], frozen=True, kw_only=True):
    """Summary of a table.

    Attributes:
        format: Format of the file.
        version: Version of the table that it was read at.
        cut: Last cut that is in it; only of observations.
        newest: Time up to which the series reaches, in microseconds since 1970, UTC.
        total: All rows.
        cells: Cells by their start, oldest first; their width follows from `newest`.
        versions: Decisions of the policy by version, of the last 200.
    """

    format: int = FORMAT
    version: int
    cut: int = 0
    newest: int = 0
    total: C
    cells: dict[int, C] = {}
    versions: dict[int, VersionTotal] = {}

    @property
    def bounds(self) -> Bounds:
        """Where cells change their width."""
        return Bounds.of(self.newest)

    def series(self, since: int = 0) -> Iterator[tuple[int, int, C]]:
        """Start, width and content of each cell that begins at a time or later."""
        bounds = self.bounds
        yield from ((start, bounds.width(start), cell) for start, cell in self.cells.items() if start >= since)

    def plus(
        self,
        cells: dict[int, C],
        *,
        version: int,
        newest: int,
        cut: int = 0,
        versions: dict[int, VersionTotal] | None = None,
    ) -> Summary[C]:
        """The summary with more rows; cells that are too old for their width are merged into coarser ones."""
        newest = max(self.newest, newest)
        bounds, total = Bounds.of(newest), self.total
        placed: dict[int, C] = {}
        for added, part in ((False, self.cells), (True, cells)):
            for start, cell in part.items():
                place = bounds.start(start)
                placed[place] = placed[place] + cell if place in placed else cell
                total = total + cell if added else total
        counted = merged(self.versions, versions or {})
        return Summary(
            version=version,
            cut=max(self.cut, cut),
            newest=newest,
            total=total,
            cells=dict(sorted(placed.items())),
            versions=dict(sorted(counted.items())[-VERSIONS:]),
        )


DecisionSummary = Summary[DecisionCell]
RewardSummary = Summary[RewardCell]
ObservationSummary = Summary[ObservationCell]
