"""Change feed of a table: the rows that a cut has to process, each exactly once.

A cut processes the rows timestamped up to its `until` that no earlier cut processed: rows timestamped between the two
cuts, plus older rows in files added since the last cut. Compaction only moves rows; the commit log tells its files
from added ones.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from potstill.events.lake import File, VersionGone, arrived_files, check_files_exist
from potstill.tables import SECOND, moment

if TYPE_CHECKING:
    from potstill.events.join.cuts import Cut, Events
    from potstill.events.lake import Lake

BEGINNING, END = -(2**62), 2**62


#: Clock skew: a reward may be timestamped this long before its decision.
SKEW = 60 * SECOND
#: Repeats of a decision are looked for this long before and after the rows of a cut.
REPEATS = 600 * SECOND


@dataclass(frozen=True)
class FileRange:
    """Rows of some files timestamped above `after` and up to `to`."""

    files: list[File]
    after: int
    to: int

    def within(self, after: int, to: int) -> FileRange:
        """The rows of a shorter time range, with only the files that can have some."""
        after, to = max(after, self.after), min(to, self.to)
        return FileRange([file for file in self.files if file.first <= to and file.last > after], after, to)

    def inside(self) -> tuple[list[File], list[File]]:
        """Files that lie entirely in the time range, and the others."""
        whole: list[File] = []
        others: list[File] = []
        for file in self.files:
            (whole if file.first > self.after and file.last <= self.to else others).append(file)
        return whole, others


@dataclass(frozen=True)
class Rows:
    """Rows of a table.

    Attributes:
        exact: False if it is no longer known which rows arrived since the last cut, so that some are read again.
    """

    lake: Lake
    table: Events
    parts: list[FileRange]
    exact: bool = True

    def scan(self, after: int = BEGINNING, to: int = END) -> pl.LazyFrame:
        """Rows timestamped above `after` and up to `to`, in no order."""
        frames = [
            self.lake.read(self.table, part.files).filter(
                pl.col("time") > moment(part.after), pl.col("time") <= moment(part.to)
            )
            for part in self.within(after, to).parts
            if part.files and part.after < part.to
        ]
        return pl.concat(frames) if frames else self.lake.read(self.table, [])

    def within(self, after: int, to: int) -> Rows:
        """The rows of a shorter time range."""
        return replace(self, parts=[part.within(after, to) for part in self.parts])

    def count(self, after: int = BEGINNING, to: int = END) -> int:
        """Number of rows in a time range; files that lie entirely in it are not opened."""
        total, opened = 0, []
        for part in self.within(after, to).parts:
            whole, others = part.inside()
            total += sum(file.rows for file in whole)
            opened.append(FileRange(others, part.after, part.to))
        return total + int(Rows(self.lake, self.table, opened).scan().select(pl.len()).collect().item())


def all_rows(lake: Lake, table: Events, cut: Cut) -> Rows:
    """Every row of a table as of a cut."""
    return Rows(lake, table, [FileRange(_files(lake, table, cut.version(table)), BEGINNING, END)])


def rows_of_cut(lake: Lake, table: Events, cut: Cut, previous: Cut | None) -> Rows:
    """Rows that a cut processes: those up to its `until` that no cut up to `previous` has processed."""
    files, until = _files(lake, table, cut.version(table)), cut.until
    if previous is None:
        return Rows(lake, table, [FileRange(files, BEGINNING, until)])
    if until < previous.until:
        return Rows(lake, table, [])
    arrivals = arrived(lake, table, cut, previous)
    if arrivals is None:
        return Rows(lake, table, [FileRange(files, BEGINNING, until)], exact=False)
    return Rows(lake, table, [FileRange(files, previous.until, until), FileRange(arrivals, BEGINNING, previous.until)])


def unjoined(lake: Lake, cut: Cut, previous: Cut) -> Rows:
    """Decisions that arrived since a cut which reaches further than `cut`, and are not after that one's end."""
    files = arrived(lake, "decisions", cut, previous)
    return Rows(lake, "decisions", [FileRange(files or [], BEGINNING, previous.until)], exact=files is not None)


def arrived(lake: Lake, table: Events, cut: Cut, previous: Cut) -> list[File] | None:
    """Files with the rows appended between two cuts; None if that is no longer known."""
    version = cut.version(table)
    return [] if version is None else arrived_files(lake, table, previous.version(table), version)


def readable(lake: Lake, table: Events, cut: Cut) -> bool:
    """Whether the rows of a table as of a cut can still be read."""
    try:
        before = _files(lake, table, cut.version(table))
        files = {file.uri for file in before} - {file.uri for file in lake.files(table)}
        check_files_exist(lake.url(table), (uri.removeprefix(lake.url(table) + "/") for uri in files))
    except (VersionGone, FileNotFoundError):
        return False
    return True


def _files(lake: Lake, table: Events, version: int | None) -> list[File]:
    return [] if version is None else lake.files(table, version)


@dataclass(frozen=True)
class CutInputs:
    """Rows of the lake that a cut reads.

    Attributes:
        decisions: Decisions that the cut joins.
        soon: Decisions that are not final yet but can have rewards that are.
        around: Decisions shortly before and after those that the cut joins, which may be repeats of them.
        rewards: All rewards.
        taken_rewards: Rewards that the cut accounts for.
        arrived_rewards: Rewards of any time that arrived since the last cut, where that is known.
    """

    lake: Lake
    cut: Cut
    decisions: Rows
    soon: Rows
    around: Rows
    rewards: Rows
    taken_rewards: Rows
    arrived_rewards: Rows

    @classmethod
    def of(cls, lake: Lake, cut: Cut, previous: Cut | None, decisions: Rows) -> CutInputs:
        """Inputs of a cut that processes some decisions, after the complete cut `previous`."""
        return cls(
            lake,
            cut,
            decisions,
            soon=all_rows(lake, "decisions", cut).within(cut.until, cut.until + SKEW),
            around=_around(lake, cut, previous),
            rewards=all_rows(lake, "rewards", cut),
            taken_rewards=_taken_rewards(lake, cut, previous),
            arrived_rewards=_arrived_rewards(lake, cut, previous),
        )

    def observed(self, days: Collection[dt.date]) -> pl.LazyFrame:
        """Observations of earlier cuts on some UTC days."""
        return self.lake.scan("observations", days=days).filter(pl.col("cut") < self.cut.number)


def _around(lake: Lake, cut: Cut, previous: Cut | None) -> Rows:
    every = all_rows(lake, "decisions", cut)
    after = every.within(cut.until, cut.until + REPEATS)
    if previous is None:
        return after
    return replace(after, parts=[*after.parts, *every.within(previous.until - REPEATS, previous.until).parts])


def _taken_rewards(lake: Lake, cut: Cut, previous: Cut | None) -> Rows:
    rows = rows_of_cut(lake, "rewards", cut, previous)
    if previous is None or rows.exact:
        return rows
    return rows.within(previous.until, cut.until)  # late rewards cannot be told from used ones


def _arrived_rewards(lake: Lake, cut: Cut, previous: Cut | None) -> Rows:
    files = None if previous is None else arrived(lake, "rewards", cut, previous)
    return Rows(lake, "rewards", [FileRange(files, BEGINNING, END)] if files else [])
