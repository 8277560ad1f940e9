"""Commit: what `EventLog.submit` gives back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_logger = logging.getLogger(__name__)


class LogUnavailable(OSError):
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
