"""How submissions become groups: those that arrive while a group is being written form the next one."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable

from potstill.errors import PotstillError

_logger = logging.getLogger(__name__)


_NEVER = sys.maxsize


class LogUnavailable(PotstillError, OSError):
    """Events could not be written: disk full, I/O error, too much pending, or the log is closed.

    The events that it is raised for are not acknowledged. Submit them again; should a part of them have reached
    the disk after all, the join counts an id once.
    """


class Commit:
    """A group of events on its way to disk; all that were submitted while the group gathered share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done = False
        self._error: LogUnavailable | None = None
        self._callbacks: list[Callable[[Commit], object]] = []

    @property
    def done(self) -> bool:
        """Whether it is decided: the events are on disk, or `error` says why not."""
        return self._done

    @property
    def error(self) -> LogUnavailable | None:
        """Why the events are not acknowledged; None if they are, or if it is not decided."""
        return self._error

    def wait(self, timeout: float | None = None) -> None:
        """Return when the events are on disk.

        Raises:
            LogUnavailable: they could not be written.
            TimeoutError: not within that many seconds; they may still get there.
        """
        if not self._done and not self._decided(timeout):
            raise TimeoutError(f"the events are not on disk after {timeout} seconds; they may still get there")
        if self._error is not None:
            # A new one for each waiter: threads must not share a traceback.
            raise LogUnavailable(*self._error.args) from self._error

    def add_done_callback(self, callback: Callable[[Commit], object]) -> None:
        """Have `callback(commit)` called once it is decided: from the commit thread, or at once if it is already.

        It has to be quick and must not wait for a commit, since the next group waits for it;
        `loop.call_soon_threadsafe` is what asyncio needs.
        """
        with self._lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        self._call(callback)

    def finish(self, error: LogUnavailable | None = None) -> None:
        """Decide it; for the log."""
        with self._lock:
            self._error, self._done = error, True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call(callback)

    def inherit(self, error: LogUnavailable) -> None:
        """In a forked child, where the parent's threads may have held the locks: decide it, and call nothing."""
        if not self._done:
            self._lock, self._callbacks = threading.Lock(), []
            self.finish(error)

    def _decided(self, timeout: float | None) -> bool:
        """Wait on a lock of its own: those who wait on one `threading.Event` wake up to queue for its lock."""
        decided = threading.Lock()
        decided.acquire()
        self.add_done_callback(lambda _: decided.release())
        return decided.acquire(timeout=-1 if timeout is None else max(0.0, timeout))

    def _call(self, callback: Callable[[Commit], object]) -> None:
        try:
            callback(self)
        except Exception:
            _logger.exception("a callback of a commit failed: %r", callback)


class Group:
    """What is written and synced together.

    Attributes:
        frames: the events as bytes, one item for each submission.
        bytes: their size.
        commit: shared by all of them.
        rotated: if somebody waits for the segment to be closed after them.
    """

    __slots__ = ("bytes", "commit", "frames", "rotated")

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.bytes = 0
        self.commit = Commit()
        self.rotated: Commit | None = None

    @property
    def commits(self) -> list[Commit]:
        """All that somebody may wait for."""
        return [self.commit] if self.rotated is None else [self.commit, self.rotated]


class Gathering:
    """Takes submissions of any threads, gives groups to one."""

    def __init__(self, where: object, *, linger: float, pending_bytes: int) -> None:
        self._where, self._linger, self._pending_bytes = where, linger, pending_bytes
        self._lock = threading.Lock()
        self._awake = threading.Condition(self._lock)
        self._group, self._taken = Group(), Group()
        self._pending = 0  # bytes that are neither on disk nor given up
        self._last = 0  # submissions in the group before
        self._wanted = _NEVER  # submissions at which to wake the thread that takes groups
        self._hurry = False  # whether somebody waits for a rotation or for the end
        self._ended: str | None = None

    def add(self, data: bytes) -> Commit:
        """Put the events of one submission into the group that gathers; `LogUnavailable` if they are too many."""
        with self._lock:
            self._refuse(len(data))
            group = self._group
            group.frames.append(data)
            group.bytes += len(data)
            self._pending += len(data)
            if len(group.frames) >= self._wanted:
                self._awake.notify()
                self._wanted = _NEVER
            return group.commit

    def rotate(self) -> Commit:
        """Ask for a rotation after what has been submitted."""
        with self._lock:
            self._refuse(0)
            self._group.rotated = self._group.rotated or Commit()
            self._hurry = True
            self._awake.notify()
            return self._group.rotated

    def end(self, why: str) -> None:
        """Take nothing more; what has been submitted is still given out."""
        with self._lock:
            self._ended = self._ended or why
            self._hurry = True
            self._awake.notify()

    @property
    def ended(self) -> bool:
        """Whether nothing more is taken."""
        return self._ended is not None

    @property
    def drained(self) -> bool:
        """Whether that is so and everything was given out."""
        return self.ended and not self._group.frames and not self._group.rotated

    def take(self, seconds: float | None) -> Group:
        """Wait for the next group, and give up after some seconds with one that is empty.

        Once its first submission is there, it waits for as many as the group before had: threads that waited for
        that one are about to come back. It does so for `linger` seconds at most.
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
        """A group that was taken is on disk or given up: there is room for more."""
        group.frames.clear()
        with self._lock:
            self._pending -= group.bytes

    def fail(self, error: LogUnavailable) -> None:
        """Nobody takes groups any more: tell all who wait."""
        for group in (self._taken, self._group):
            for commit in group.commits:
                if not commit.done:
                    commit.finish(error)

    def inherit(self, why: str) -> None:
        """In a forked child, where no thread takes groups and the parent's may have held the lock: end it."""
        error = LogUnavailable(f"{self._where}: {why}")
        for group in (self._taken, self._group):
            for commit in group.commits:
                commit.inherit(error)
        Gathering.__init__(self, self._where, linger=self._linger, pending_bytes=self._pending_bytes)
        self._ended = why

    def _wait(self, submissions: int, seconds: float | None) -> None:
        self._wanted = submissions
        self._awake.wait_for(lambda: self._hurry or len(self._group.frames) >= submissions, seconds)

    def _refuse(self, size: int) -> None:
        if self._ended is not None:
            raise LogUnavailable(f"the event log in {self._where} takes nothing more: {self._ended}")
        if self._pending + size > self._pending_bytes:
            raise LogUnavailable(
                f"{self._pending} bytes wait for the disk in {self._where}, and {size} more would exceed "
                f"{self._pending_bytes}; wait for a commit before submitting more, or submit less at once"
            )
