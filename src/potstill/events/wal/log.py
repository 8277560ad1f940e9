"""The write side of the event log: append, and know when it is on disk."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import uuid
import weakref
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from potstill.events.records import Event
from potstill.events.validate import Checker, InvalidEvent, payload
from potstill.events.wal.group_commit import Commit, Gathering, Group, LogUnavailable
from potstill.events.wal.segment import DecisionBlock, Row, frame
from potstill.events.wal.segment_writer import SegmentWriter
from potstill.events.wal.spool import remove_if_empty, take_folder
from potstill.files import make_folder
from potstill.problem import Problem

MIB = 1024 * 1024
_logger = logging.getLogger(__name__)


class EventLog:
    """Appends events of one problem to segments of its own; for any number of threads of one process.

    >>> with EventLog(Path("events/log"), problem) as log:
    ...     log.append(LoggedReward(id="upload-123", reward=1.0))

    An event is acknowledged when a sync of the file it was written to has returned. Events that are submitted while
    the sync before is going on share the next one.

    Args:
        spool: local folder of the segments; other processes may log to it too, each in a folder of its own.
        problem: what events are checked against.
        rotate_bytes: size at which a segment is closed, so that it can go to the lake.
        rotate_seconds: age at which it is.
        linger: how long to wait for as many submissions as the group before had, in seconds.
        pending_bytes: how much may wait for the disk; beyond it, events are refused.

    Attributes:
        writer: names this log among all that ever write to the lake.
    """

    def __init__(
        self,
        spool: Path,
        problem: Problem,
        *,
        rotate_bytes: int = 32 * MIB,
        rotate_seconds: float = 10.0,
        linger: float = 0.002,
        pending_bytes: int = 64 * MIB,
    ) -> None:
        self.writer = uuid.uuid4().hex
        self._folder = Path(spool) / self.writer
        self._encode = Checker(problem).encode
        self._folder_lock: int | None = _lock_folder(self._folder)
        self._segments = SegmentWriter(self._folder, problem, rotate_bytes=rotate_bytes, rotate_seconds=rotate_seconds)
        self._gathering = Gathering(self._folder, linger=linger, pending_bytes=pending_bytes)
        self._lost: LogUnavailable | None = None  # why what was pending at the end is not on disk
        self._thread: threading.Thread | None = threading.Thread(
            target=self._run, name="potstill-event-log", daemon=True
        )
        self._thread.start()
        _logs.add(self)
        atexit.register(self.close)

    def append(self, *events: Event) -> None:
        """Return when the events are on disk.

        Raises:
            InvalidEvent: one of them does not fit the problem; none is written.
            InvalidContext: the same, of a context.
            LogUnavailable: they could not be written.
        """
        self.submit(*events).wait()

    def submit(self, *events: Event) -> Commit:
        """Hand events over and do not wait; the commit says when they are on disk. Raises as `append` does."""
        return self._gathering.add(b"".join([frame(self._encode(event)) for event in events]))

    def submit_rows(self, rows: Iterable[Row | DecisionBlock]) -> Commit:
        """The same for rows, which are written as they are: whoever makes them has checked what is in them."""
        return self._gathering.add(b"".join([frame(data) for row in rows for data in _payloads(row)]))

    def rotate(self) -> None:
        """Commit what is pending and close the segment, if it has events, so that it can go to the lake."""
        self._gathering.rotate().wait()

    def close(self) -> None:
        """Commit what is pending, close the segment and let go of the folder; again is no error.

        Raises:
            LogUnavailable: what was pending could not be written; its commits say so too.
        """
        atexit.unregister(self.close)
        self._gathering.end("it is closed; open another EventLog")
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if self._lost is not None:
            raise LogUnavailable(*self._lost.args) from self._lost

    def __enter__(self) -> EventLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        """The commit thread."""
        try:
            while not self._gathering.drained:
                self._commit(self._gathering.take(self._segments.seconds_left))
        finally:
            self._release()

    def _commit(self, group: Group) -> None:
        error = self._write(group) if group.bytes else None
        self._gathering.written(group)
        if error is not None and self._gathering.ended:
            self._lost = error
        group.commit.finish(error)
        if group.rotated is not None:
            group.rotated.finish(error or self._finish_segment())
        elif self._segments.due:
            self._finish_segment()

    def _write(self, group: Group) -> LogUnavailable | None:
        try:
            self._segments.commit(b"".join(group.frames))
        except Exception as error:
            return _unavailable(error, self._folder)
        return None

    def _finish_segment(self) -> LogUnavailable | None:
        try:
            self._segments.finish()
        except OSError as error:
            _logger.warning("a segment in %s could not be closed; that is tried again: %s", self._folder, error)
            return _unavailable(error, self._folder)
        return None

    def _release(self) -> None:
        self._gathering.end("its commit thread has failed; open another EventLog")
        self._gathering.fail(LogUnavailable(f"the event log in {self._folder} has ended"))
        self._finish_segment()
        remove_if_empty(self._folder)
        self._let_go()

    def _let_go(self) -> None:
        if self._folder_lock is not None:
            descriptor, self._folder_lock = self._folder_lock, None
            os.close(descriptor)

    def _inherit(self) -> None:
        """In a forked child: leave everything to the parent.

        The child's copies of the descriptors are closed, or the parent's folder would be locked as long as it lives.
        """
        self._thread = None
        self._gathering.inherit("it belongs to the process that this one was forked from; open another EventLog here")
        self._segments.drop_descriptor()
        self._let_go()


def _payloads(row: Row | DecisionBlock) -> list[bytes]:
    """A row as the payload of one frame; of several, if it is a block that is longer than an event may be."""
    if not isinstance(row, DecisionBlock):
        return [payload(row)]
    if len(row.ids) == 1:
        return [payload(next(row.rows()))]
    try:
        return [payload(row)]
    except InvalidEvent:  # if one of the decisions is at fault, it is found, and named as if it came alone
        return [data for half in row.halves() for data in _payloads(half)]


def _lock_folder(folder: Path) -> int:
    try:
        make_folder(folder.parent)
        return take_folder(folder)
    except OSError as error:
        raise _unavailable(error, folder) from error


def _unavailable(error: Exception, folder: Path) -> LogUnavailable:
    if not isinstance(error, OSError):
        return LogUnavailable(f"{error!r}: events cannot be written to {folder}; submit them again")
    way_out = f"events cannot be written to {folder}; free space or mend the disk, then submit them again"
    return LogUnavailable(error.errno, f"{error.strerror or error}: {way_out}")


_logs: weakref.WeakSet[EventLog] = weakref.WeakSet()


def _after_fork() -> None:
    for log in list(_logs):
        log._inherit()


os.register_at_fork(after_in_child=_after_fork)
