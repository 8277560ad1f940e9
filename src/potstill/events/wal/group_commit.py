"""Group commit: submissions that arrive while a group is written form the next group."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Sequence

from potstill.errors import PotstillError

_logger = logging.getLogger(__name__)
_NEVER = sys.maxsize


class LogUnavailable(PotstillError, OSError):
    """Events could not be written: disk full, I/O error, too much pending, or the log is closed.

    The events that it is raised for are not acknowledged: submit them again. Some may have reached the disk; the join
    counts an id once.
    """


class Commit:
    """A group of events on its way to disk; all submissions of the group share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done = False
        self._error: LogUnavailable | None = None
        self._callbacks: list[Callable[[Commit], object]] = []

    @property
    def done(self) -> bool:
        """Whether the outcome is known: the events are on disk, or `error` says why not."""
        return self._done

    @property
    def error(self) -> LogUnavailable | None:
        """Why the events are not acknowledged; None if they are, or if the outcome is not known."""
        return self._error

    def wait(self, timeout: float | None = None) -> None:
        """Return when the events are on disk.

        Raises:
            LogUnavailable: They could not be written.
            TimeoutError: Not on disk within `timeout` seconds; they may still be written.
        """
        if not self._done and not self._wait(timeout):
            raise TimeoutError(f"the events are not on disk after {timeout} seconds; they may still be written")
        if self._error is not None:
            # A new exception for each waiter: threads must not share a traceback.
            raise LogUnavailable(*self._error.args) from self._error

    def add_done_callback(self, callback: Callable[[Commit], object]) -> None:
        """Call `callback(commit)` once the outcome is known: from the commit thread, or at once if it is.

        The callback delays the next group, so it must be quick and must not wait for a commit. Under asyncio, use
        `loop.call_soon_threadsafe`.
        """
        with self._lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        self._call(callback)

    def finish(self, error: LogUnavailable | None = None) -> None:
        """Set the outcome; for the log."""
        with self._lock:
            self._error, self._done = error, True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call(callback)

    def inherit(self, error: LogUnavailable) -> None:
        """In a forked child, where the parent's threads may have held the locks: set the outcome, call nothing."""
        if not self._done:
            self._lock, self._callbacks = threading.Lock(), []
            self.finish(error)

    def _wait(self, timeout: float | None) -> bool:
        """Wait on a lock of its own: waiters of one `threading.Event` would contend for its lock on waking."""
        done = threading.Lock()
        done.acquire()
        self.add_done_callback(lambda _: done.release())
        return done.acquire(timeout=-1 if timeout is None else max(0.0, timeout))

    def _call(self, callback: Callable[[Commit], object]) -> None:
        try:
            callback(self)
        except Exception:
            _logger.exception("a commit callback failed: %r", callback)


class Group:
    """Events that are written and synced together.

    Attributes:
        frames: The events as bytes, one item for each submission.
        bytes: Their size.
        commit: The commit of all of them.
        rotated: Commit of the rotation after them, if one was requested.
    """

    __slots__ = ("bytes", "commit", "frames", "rotated")

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.bytes = 0
        self.commit = Commit()
        self.rotated: Commit | None = None

    @property
    def commits(self) -> list[Commit]:
        """All commits that a caller may wait for."""
        return [self.commit] if self.rotated is None else [self.commit, self.rotated]


class GroupQueue:
    """Collects submissions of any number of threads into groups for one commit thread."""

    def __init__(self, where: object, *, linger: float, pending_bytes: int) -> None:
        self._where, self._linger, self._pending_bytes = where, linger, pending_bytes
        self._lock = threading.Lock()
        self._awake = threading.Condition(self._lock)
        self._group, self._taken = Group(), Group()
        self._pending = 0  # bytes that are neither on disk nor failed
        self._last = 0  # submissions in the previous group
        self._wanted = _NEVER  # submissions at which to wake the commit thread
        self._hurry = False  # whether a rotation or the end was requested
        self._ended: str | None = None

    def add(self, submissions: Sequence[bytes]) -> Commit:
        """Add submissions to the open group; `LogUnavailable` if too many bytes are pending."""
        size = sum(map(len, submissions))
        with self._lock:
            self._refuse(size)
            group = self._group
            group.frames.extend(submissions)
            group.bytes += size
            self._pending += size
            if len(group.frames) >= self._wanted:
                self._awake.notify()
                self._wanted = _NEVER
            return group.commit

    def rotate(self) -> Commit:
        """Request a rotation after what has been submitted."""
        with self._lock:
            self._refuse(0)
            self._group.rotated = self._group.rotated or Commit()
            self._hurry = True
            self._awake.notify()
            return self._group.rotated

    def end(self, why: str) -> None:
        """Refuse further submissions; pending groups are still handed out."""
        with self._lock:
            self._ended = self._ended or why
            self._hurry = True
            self._awake.notify()

    @property
    def ended(self) -> bool:
        """Whether submissions are refused."""
        return self._ended is not None

    @property
    def drained(self) -> bool:
        """Whether submissions are refused and every group was handed out."""
        return self.ended and not self._group.frames and not self._group.rotated

    def take(self, seconds: float | None) -> Group:
        """Wait for the next group; after a timeout it is empty.

        After its first submission it waits for as many as the previous group had, for at most `linger` seconds:
        threads that waited for that group are about to submit again.
        """
        with self._lock:
            self._wait(1, seconds)
            if self._group.frames:
                self._wait(self._last, self._linger)
            self._last = len(self._group.frames)
            self._taken, self._group = self._group, Group()
            self._wanted, self._hurry = _NEVER, False
            return self._taken

    def written(self, group: Group) -> None:
        """Release the bytes of a group that is on disk or has failed."""
        group.frames.clear()
        with self._lock:
            self._pending -= group.bytes

    def fail(self, error: LogUnavailable) -> None:
        """Fail all pending commits: the commit thread has ended."""
        for group in (self._taken, self._group):
            for commit in group.commits:
                if not commit.done:
                    commit.finish(error)

    def inherit(self, why: str) -> None:
        """In a forked child, which has no commit thread, and where the parent's may have held the lock: end it."""
        error = LogUnavailable(f"{self._where}: {why}")
        for group in (self._taken, self._group):
            for commit in group.commits:
                commit.inherit(error)
        GroupQueue.__init__(self, self._where, linger=self._linger, pending_bytes=self._pending_bytes)
        self._ended = why

    def _wait(self, submissions: int, seconds: float | None) -> None:
        self._wanted = submissions
        self._awake.wait_for(lambda: self._hurry or len(self._group.frames) >= submissions, seconds)

    def _refuse(self, size: int) -> None:
        if self._ended is not None:
            raise LogUnavailable(f"the event log in {self._where} accepts nothing more: {self._ended}")
        if self._pending + size > self._pending_bytes:
            raise LogUnavailable(
                f"{self._pending} bytes are pending in {self._where}, and {size} more would exceed "
                f"{self._pending_bytes}; wait for a commit before submitting more, or submit less at once"
            )
