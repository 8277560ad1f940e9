"""The event log: append events, and wait until they are on disk."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import uuid
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

from potstill.events.records import DecisionBlock, Event, Row
from potstill.events.validate import EventValidator, InvalidEvent, payload
from potstill.events.wal.group_commit import Commit, Group, GroupQueue, LogUnavailable
from potstill.events.wal.segment import frame
from potstill.events.wal.segment_writer import SegmentWriter
from potstill.events.wal.spool import remove_if_empty, take_folder
from potstill.files import make_folder
from potstill.problem import Problem

MIB = 1024 * 1024
_logger = logging.getLogger(__name__)


class EventLog:
    """Appends events of one problem to its own segments; for any number of threads of one process.

    >>> with EventLog(Path("events/log"), problem) as log:
    ...     log.append(LoggedReward(id="upload-123", reward=1.0))

    An event is acknowledged when its file has been synced. Events that are submitted during a sync share the next one.

    Args:
        spool: Local folder of the segments; other processes may share it, each in a folder of its own.
        problem: Problem that events are checked against.
        rotate_bytes: Size at which a segment is closed and ready for the lake.
        rotate_seconds: Age at which a segment is closed.
        linger: Seconds to wait for as many submissions as the previous group had.
        pending_bytes: The most bytes that may wait for the disk; further events are refused.

    Attributes:
        writer: Unique id of this log among all that write to the lake.
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
        self._encode = EventValidator(problem).encode
        self._folder_lock: int | None = _lock_folder(self._folder)
        self._segments = SegmentWriter(self._folder, problem, rotate_bytes=rotate_bytes, rotate_seconds=rotate_seconds)
        self._queue = GroupQueue(self._folder, linger=linger, pending_bytes=pending_bytes)
        self._lost: LogUnavailable | None = None  # why pending events were lost at the end
        self._thread: threading.Thread | None = threading.Thread(
            target=self._run, name="potstill-event-log", daemon=True
        )
        self._thread.start()
        _logs.add(self)
        atexit.register(self.close)

    def append(self, *events: Event) -> None:
        """Return when the events are on disk.

        Raises:
            InvalidEvent: An event does not fit the problem; none is written.
            InvalidContext: A context does not fit the problem; none is written.
            LogUnavailable: They could not be written.
        """
        self.submit(*events).wait()

    def submit(self, *events: Event) -> Commit:
        """Submit events without waiting; the commit says when they are on disk. Raises as `append` does."""
        return self._queue.add([self.encode(*events)])

    def submit_rows(self, rows: Iterable[Row | DecisionBlock]) -> Commit:
        """Submit rows, which are written unchecked."""
        return self._queue.add([frames(rows)])

    def submit_frames(self, submissions: Sequence[bytes]) -> Commit:
        """Submit several times at once; each item is what `encode` or `frames` returned."""
        return self._queue.add(submissions)

    def encode(self, *events: Event) -> bytes:
        """Events as the log writes them; raises as `append` does."""
        return b"".join([frame(self._encode(event)) for event in events])

    def rotate(self) -> None:
        """Commit what is pending, and close the segment if it has events, so that it is ready for the lake."""
        self._queue.rotate().wait()

    def close(self) -> None:
        """Commit what is pending, close the segment and release the folder. Closing twice has no effect.

        Raises:
            LogUnavailable: Pending events could not be written; their commits fail too.
        """
        atexit.unregister(self.close)
        self._queue.end("it is closed; open another EventLog")
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
            while not self._queue.drained:
                self._commit(self._queue.take(self._segments.seconds_left))
        finally:
            self._release()

    def _commit(self, group: Group) -> None:
        error = self._write(group) if group.bytes else None
        self._queue.written(group)
        if error is not None and self._queue.ended:
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
        except Exception as error:  # also a MemoryError: the commit thread goes on
            _logger.warning("a segment in %s could not be closed; retrying: %r", self._folder, error)
            return _unavailable(error, self._folder)
        return None

    def _release(self) -> None:
        self._queue.end("its commit thread has failed; open another EventLog")
        self._queue.fail(LogUnavailable(f"the event log in {self._folder} has ended"))
        try:
            self._finish_segment()
            remove_if_empty(self._folder)
        finally:
            self._unlock()

    def _unlock(self) -> None:
        if self._folder_lock is not None:
            descriptor, self._folder_lock = self._folder_lock, None
            os.close(descriptor)

    def _inherit(self) -> None:
        """In a forked child: leave everything to the parent.

        The child closes its copies of the descriptors, which would keep the parent's folder locked.
        """
        self._thread = None
        self._queue.inherit("it belongs to the process that this one was forked from; open another EventLog here")
        self._segments.drop_descriptor()
        self._unlock()


def frames(rows: Iterable[Row | DecisionBlock]) -> bytes:
    """Rows as the log writes them; `InvalidEvent` if one is too long."""
    return b"".join([frame(data) for row in rows for data in _payloads(row)])


def _payloads(row: Row | DecisionBlock) -> list[bytes]:
    """A row as the payload of one frame; of several, if it is a block longer than an event may be."""
    if not isinstance(row, DecisionBlock):
        return [payload(row)]
    if len(row) == 1:
        return [payload(next(row.rows()))]
    try:
        return [payload(row)]
    except InvalidEvent:  # halving finds the decision at fault, and the error names it
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
    way_out = f"events cannot be written to {folder}; free space or repair the disk, then submit them again"
    return LogUnavailable(error.errno, f"{error.strerror or error}: {way_out}")


_logs: weakref.WeakSet[EventLog] = weakref.WeakSet()


def _after_fork() -> None:
    for log in list(_logs):
        log._inherit()


os.register_at_fork(after_in_child=_after_fork)
