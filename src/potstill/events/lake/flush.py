"""From the log to the lake: closed segments become rows of the tables, once, and are deleted then.

A segment's number is the number under which its rows are appended. Whatever is interrupted is done again, and the
tables take only what they do not have: decisions and rewards each for themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import polars as pl

from potstill import files
from potstill.events.lake.delta import LakeUnavailable
from potstill.events.lake.frames import decision_frame, reward_frame, split
from potstill.events.lake.lake import Lake
from potstill.events.lake.schema import Table
from potstill.events.records import now
from potstill.events.wal.segment import UnreadableSegment, read, read_header
from potstill.events.wal.spool import Spool
from potstill.files import write_atomically
from potstill.problem import Problem

#: Small segments of a writer go into the lake together, up to this size.
GROUP_BYTES = 32 * 1024 * 1024
STATE, LOCK = "flush.json", "flush.lock"
_FRAMES: dict[Table, Callable[[Any, Problem], pl.DataFrame]] = {"decisions": decision_frame, "rewards": reward_frame}


class FlushReport(msgspec.Struct, kw_only=True):
    """What a flush did.

    Attributes:
        segments: how many were taken and deleted.
        decisions: rows added.
        rewards: rows added.
        bytes: size of the segments.
        cut: what was damaged in the log, in words; the bytes are kept in its quarantine folder.
        errors: why segments had to stay.
        busy: another flusher was at it, and this one did nothing.
    """

    segments: int = 0
    decisions: int = 0
    rewards: int = 0
    bytes: int = 0
    cut: list[str] = []
    errors: list[str] = []
    busy: bool = False

    @property
    def error(self) -> str | None:
        """Why segments had to stay; None if none had to."""
        return "\n".join(self.errors) or None


class FlushState(msgspec.Struct, frozen=True, kw_only=True):
    """What the flushers of a spool last did.

    Attributes:
        time: of the last flush, in microseconds since 1970, UTC.
        error: why segments had to stay in it; None if none had to.
        last_error: the last one that there was.
        last_error_time: when that was.
    """

    time: int
    error: str | None = None
    last_error: str | None = None
    last_error_time: int | None = None


class Flusher:
    """Moves the closed segments of a spool into a lake. Any number may be at it, in as many processes.

    Args:
        spool: the folder of segments.
        lake: where they go.
    """

    def __init__(self, spool: Spool, lake: Lake) -> None:
        self.spool, self.lake = spool, lake

    def flush(self, *, wait: bool = True) -> FlushReport:
        """Take every segment that is closed. What cannot be taken now stays, and the report says why.

        Args:
            wait: for another flusher of the same spool; if not, and there is one, nothing is done.
        """
        self.spool.path.mkdir(parents=True, exist_ok=True)
        lock = files.hold(self.spool.path / LOCK, wait=wait)
        if lock is None:
            return FlushReport(busy=True)
        try:
            report = FlushReport()
            self.lake.reopen()
            self._adopt(report)
            self._take_all(report)
            self._record(report)
        finally:
            os.close(lock)
        return report

    def _adopt(self, report: FlushReport) -> None:
        try:
            report.cut += self.spool.adopt()
        except OSError as error:
            report.errors.append(f"segments of writers that are no more could not be closed: {error}")

    def _take_all(self, report: FlushReport) -> None:
        for writer in self.spool.writers():
            try:
                self._take(writer, report)
            except LakeUnavailable as error:
                report.errors.append(str(error))
                return
            except Exception as error:  # whatever it is, the other writers are no worse for it
                report.errors.append(f"writer {writer}: {type(error).__name__}: {error}")

    def _take(self, writer: str, report: FlushReport) -> None:
        for group in _groups(self._ready(writer, report)):
            batch = _Batch(self.lake, writer, group[-1].number)
            damages = [batch.add(ready) for ready in group]
            report.decisions += batch.append("decisions")
            report.rewards += batch.append("rewards")
            for ready, damage in zip(group, damages, strict=True):
                if damage is not None:
                    report.cut.append(self._kept(ready.path, damage.what, damage.start))
                report.segments += 1
                report.bytes += ready.bytes
                self.spool.remove(writer, ready.path)

    def _ready(self, writer: str, report: FlushReport) -> Iterator[_Ready]:
        """A writer's closed segments in order; those that cannot be read at all are put aside."""
        for path in self.spool.closed(writer):
            try:
                problem = read_header(path).problem_hash
            except UnreadableSegment as error:
                report.cut.append(self._kept(path, str(error), 0))
                self.spool.remove(writer, path)
            else:
                yield _Ready(path, int(path.stem), path.stat().st_size, problem)

    def _kept(self, path: Path, damage: str, start: int) -> str:
        """Put a segment's bytes from a place on into quarantine; the damage in words."""
        return f"{damage}; these bytes are kept in {self.spool.quarantine(path, start)}"

    def _record(self, report: FlushReport) -> None:
        time, error = now(), report.error
        before = last_flush(self.spool) or FlushState(time=time)
        last = (error, time) if error else (before.last_error, before.last_error_time)
        state = FlushState(time=time, error=error, last_error=last[0], last_error_time=last[1])
        try:
            write_atomically(self.spool.path / STATE, msgspec.json.encode(state))
        except OSError as failure:
            report.errors.append(f"the flush could not be put on record: {failure}")


def last_flush(spool: Spool) -> FlushState | None:
    """What the flushers of a spool last did; None if nothing is known."""
    try:
        return msgspec.json.decode((spool.path / STATE).read_bytes(), type=FlushState)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


class _Ready(NamedTuple):
    """A closed segment."""

    path: Path
    number: int
    bytes: int
    problem: str


class _Damage(NamedTuple):
    """What is wrong with a segment, and from which byte on."""

    what: str
    start: int


class _Batch:
    """Rows of one writer's segments for one commit to each table, without those that a table has already."""

    def __init__(self, lake: Lake, writer: str, number: int) -> None:
        self.lake, self.writer, self.number = lake, writer, number
        self.done: dict[Table, int] = {table: lake.transaction(table, writer) or 0 for table in _FRAMES}
        self.frames: dict[Table, list[pl.DataFrame]] = {table: [] for table in _FRAMES}

    def add(self, ready: _Ready) -> _Damage | None:
        """Take a segment's rows up to the first damaged one."""
        segment = read(ready.path)
        for table, rows in zip(_FRAMES, split(segment.events), strict=True):
            if rows and ready.number > self.done[table]:
                self.frames[table].append(_FRAMES[table](rows, segment.header.problem))
        return None if segment.damage is None else _Damage(segment.damage, segment.good_bytes)

    def append(self, table: Table) -> int:
        """How many rows were added."""
        if not self.frames[table]:
            return 0
        frame = pl.concat(self.frames[table])
        added = self.lake.append(table, frame, writer=self.writer, number=self.number, after=self.done[table])
        return frame.height if added else 0


def _groups(segments: Iterable[_Ready]) -> Iterator[list[_Ready]]:
    """Segments in order, those of one problem together as long as they are small."""
    group: list[_Ready] = []
    for ready in segments:
        size = sum(other.bytes for other in group)
        if group and (size + ready.bytes > GROUP_BYTES or ready.problem != group[-1].problem):
            yield group
            group = []
        group.append(ready)
    if group:
        yield group
