"""Flush: append the rows of closed segments to the lake's tables exactly once, then retire the segments.

Rows are appended under their segment's number as a transaction id. After an interruption the flush is repeated, and
each table skips the numbers that it has. Rewards are committed before the decisions of their segments, so that a join
in between finds no decision whose rewards are still in the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import polars as pl

from potstill import files
from potstill.clock import now as clock
from potstill.events.lake.delta import LakeUnavailable
from potstill.events.lake.frames import FRAMES, split
from potstill.events.lake.lake import Lake
from potstill.events.lake.schema import SchemaMismatch, Table
from potstill.events.log_watermark import LogWatermark
from potstill.events.wal import Damage, LaterFormat, Spool, UnreadableSegment, read, read_header
from potstill.files import write_atomically

#: Size up to which segments of a writer are flushed together.
GROUP_BYTES = 32 * 1024 * 1024
STATE, LOCK = "flush.json", "flush.lock"
#: Seconds after which a flush is recorded although nothing was flushed.
RECORD = 5.0


class FlushReport(msgspec.Struct, kw_only=True):
    """What a flush did.

    Attributes:
        segments: Number of segments that were flushed and retired.
        decisions: Number of rows added to the table of decisions.
        rewards: Number of rows added to the table of rewards.
        bytes: Size of the segments.
        cut: Descriptions of damage in the log; the bytes are in its quarantine folder.
        errors: Why segments stay in the log.
        busy: Whether another flusher held the lock, so that this one did nothing.
        watermark: What the log acknowledged before this time is in the lake; None if it is not published.
    """

    segments: int = 0
    decisions: int = 0
    rewards: int = 0
    bytes: int = 0
    cut: list[str] = []
    errors: list[str] = []
    busy: bool = False
    watermark: int | None = None

    @property
    def error(self) -> str | None:
        """Why segments stay in the log; None if none do."""
        return "\n".join(self.errors) or None


class FlushState(msgspec.Struct, frozen=True, kw_only=True):
    """Record of the last flush of a spool.

    Attributes:
        time: Time of the flush, in microseconds since 1970, UTC.
        error: Why segments stayed in the log; None if none did.
        last_error: The last error of any flush.
        last_error_time: Time of that error.
    """

    time: int
    error: str | None = None
    last_error: str | None = None
    last_error_time: int | None = None


class Flusher:
    """Flushes the closed segments of a spool into a lake. Any number of processes may do so.

    Args:
        spool: The spool.
        lake: The lake.
        watermark: The watermark of the spool's log, published after each flush; none if left out.
    """

    def __init__(self, spool: Spool, lake: Lake, watermark: LogWatermark | None = None) -> None:
        self.spool, self.lake, self._watermark = spool, lake, watermark

    def flush(self, *, wait: bool = True, now: int | None = None) -> FlushReport:
        """Flush every closed segment. Those that fail stay in the log, and the report says why.

        Args:
            wait: Whether to wait for another flusher of the same spool, rather than do nothing.
            now: Microseconds since 1970, UTC; the present if left out.
        """
        files.make_folder(self.spool.path)
        lock = files.hold(self.spool.path / LOCK, wait=wait)
        if lock is None:
            return FlushReport(busy=True)
        try:
            report, moment = FlushReport(), clock() if now is None else now
            self.lake.reopen()
            self._adopt(report)
            aside = self._flush_all(report)
            self._publish(moment, aside, report)
            self._record(report)
        finally:
            os.close(lock)
        return report

    def _adopt(self, report: FlushReport) -> None:
        try:
            report.cut += self.spool.adopt()
        except OSError as error:
            report.errors.append(f"segments of dead writers could not be closed: {error}")

    def _flush_all(self, report: FlushReport) -> set[Path]:
        """Flush all writers' segments; returns those whose rewards are in the lake and whose decisions cannot be."""
        aside: set[Path] = set()
        for writer in self.spool.writers():
            try:
                self._flush(writer, report, aside)
            except LakeUnavailable as error:
                report.errors.append(str(error))
                break
            except Exception as error:  # it must not keep the other writers' segments from the lake
                report.errors.append(f"writer {writer}: {type(error).__name__}: {error}")
        return aside

    def _flush(self, writer: str, report: FlushReport, aside: set[Path]) -> None:
        """Flush a writer's segments. Where the table cannot have its decisions, they stay, and only rewards go on."""
        mismatch: SchemaMismatch | None = None
        for group in _groups(self._closed(writer, report)):
            batch = _Batch(self.lake, writer, group[-1].number)
            damages = [batch.add(ready) for ready in group]
            report.rewards += batch.append("rewards")
            try:
                report.decisions += batch.append("decisions") if mismatch is None else 0
            except SchemaMismatch as error:
                mismatch = error
            if mismatch is not None:
                aside.update(ready.path for ready in group)
                continue
            for ready, found in zip(group, damages, strict=True):
                report.cut += [self._quarantine(ready.path, damage) for damage in found]
                report.segments += 1
                report.bytes += ready.bytes
                self.spool.retire(writer, ready.path)
        if mismatch is not None:
            raise mismatch

    def _closed(self, writer: str, report: FlushReport) -> Iterator[_Closed]:
        """A writer's closed segments in order; unreadable ones go to quarantine."""
        for path in self.spool.closed(writer):
            try:
                problem = read_header(path).problem_hash
            except LaterFormat as error:  # it waits, and those behind it, which are flushed in order
                report.errors.append(str(error))
                return
            except UnreadableSegment as error:
                report.cut.append(self._quarantine(path, Damage(0, path.stat().st_size, str(error))))
                self.spool.remove(writer, path)
            else:
                yield _Closed(path, int(path.stem), path.stat().st_size, problem)

    def _quarantine(self, path: Path, damage: Damage) -> str:
        """Copy the damaged bytes of a segment to quarantine; returns a description of the damage."""
        return f"{damage.what}; these bytes are kept in {self.spool.quarantine(path, damage.start, damage.end)}"

    def _publish(self, moment: int, aside: set[Path], report: FlushReport) -> None:
        if self._watermark is not None:
            try:
                report.watermark = self._watermark.publish(moment, aside)
            except OSError as error:
                report.errors.append(f"the log's watermark could not be published, so that cuts wait: {error}")

    def _record(self, report: FlushReport) -> None:
        time, error = clock(), report.error
        before = last_flush(self.spool)
        if before and not report.segments and error == before.error and 0 <= time - before.time < RECORD * 1e6:
            return
        before = before or FlushState(time=time)
        last = (error, time) if error else (before.last_error, before.last_error_time)
        state = FlushState(time=time, error=error, last_error=last[0], last_error_time=last[1])
        try:
            write_atomically(self.spool.path / STATE, msgspec.json.encode(state))
        except OSError as failure:
            report.errors.append(f"the flush could not be recorded: {failure}")


def last_flush(spool: Spool) -> FlushState | None:
    """Record of the last flush of a spool; None if there is none."""
    try:
        return msgspec.json.decode((spool.path / STATE).read_bytes(), type=FlushState)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


class _Closed(NamedTuple):
    """A closed segment."""

    path: Path
    number: int
    bytes: int
    problem: str


class _Batch:
    """Rows of one writer's segments for one commit to each table, without those that a table has."""

    def __init__(self, lake: Lake, writer: str, number: int) -> None:
        self.lake, self.writer, self.number = lake, writer, number
        self.done: dict[Table, int] = {table: lake.transaction(table, writer) or 0 for table in FRAMES}
        self.frames: dict[Table, list[pl.DataFrame]] = {table: [] for table in FRAMES}

    def add(self, ready: _Closed) -> list[Damage]:
        """Add a segment's intact rows; returns what is damaged."""
        segment = read(ready.path)
        for table, rows in zip(FRAMES, split(segment.events), strict=True):
            if rows and ready.number > self.done[table]:
                self.frames[table].append(FRAMES[table](rows, segment.header.problem))
        return segment.damages

    def append(self, table: Table) -> int:
        """Append to a table; returns the number of rows added."""
        if not self.frames[table]:
            return 0
        frame = pl.concat(self.frames[table])
        added = self.lake.append(table, frame, writer=self.writer, number=self.number, after=self.done[table])
        return frame.height if added else 0


def _groups(segments: Iterable[_Closed]) -> Iterator[list[_Closed]]:
    """Segments in order, grouped by problem up to `GROUP_BYTES`."""
    group: list[_Closed] = []
    for ready in segments:
        size = sum(other.bytes for other in group)
        if group and (size + ready.bytes > GROUP_BYTES or ready.problem != group[-1].problem):
            yield group
            group = []
        group.append(ready)
    if group:
        yield group
