"""The event log for an event loop: each group costs one wake-up of the commit thread and one of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

from potstill.events import Commit, DecisionBlock, Event, EventLog, LogUnavailable, Row, frames


class AsyncCommit:
    """A group of events on its way to disk, to be awaited.

    Attributes:
        done: Whether the outcome is known.
        error: Why the events are not acknowledged; None if they are, or if the outcome is not known.
    """

    __slots__ = ("_timer", "_waiters", "done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: LogUnavailable | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: list[asyncio.Future[None]] = []

    @classmethod
    def failed(cls, error: LogUnavailable) -> AsyncCommit:
        """A commit of events that the log refused."""
        commit = cls()
        commit.resolve(error)
        return commit

    def expire(self, timer: asyncio.TimerHandle) -> None:
        """Set the timer that resolves it if the disk does not; an earlier outcome cancels it."""
        self._timer = timer

    async def wait(self) -> None:
        """Return when the events are on disk; `LogUnavailable` if they will not be, or not in time."""
        if not self.done:
            # A future for each waiter: cancelling a task cancels the future that it awaits.
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(future)
            await future
        if self.error is not None:
            raise LogUnavailable(*self.error.args) from self.error

    def resolve(self, error: LogUnavailable | None) -> None:
        """Wake all waiters. The first outcome holds: events that are late stay unacknowledged."""
        if self.done:
            return
        self.done, self.error = True, error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None  # the cache of decisions keeps commits: do not keep their timers with them
        for future in self._waiters:
            if not future.done():
                future.set_result(None)
        self._waiters.clear()


class AsyncLog:
    """An event log to be used within one event loop.

    What is submitted in one iteration of the loop is handed to the log together.

    Args:
        log: The log; `close` closes it.
        timeout: Seconds to wait for the disk.
    """

    def __init__(self, log: EventLog, timeout: float) -> None:
        self._log, self._timeout = log, timeout
        self._loop = asyncio.get_running_loop()
        self._gathered: list[bytes] = []  # the submissions of this iteration of the loop
        self._commit = AsyncCommit()  # of these
        self.fault: LogUnavailable | None = None  # of the last group

    def submit(self, events: Sequence[Event]) -> AsyncCommit:
        """Submit events without waiting.

        Raises:
            InvalidEvent: One does not fit the problem; none is written.
        """
        return self._add(self._log.encode(*events))

    def submit_rows(self, rows: Iterable[Row | DecisionBlock]) -> AsyncCommit:
        """Submit rows that have been checked; `InvalidEvent` if one is too long."""
        return self._add(frames(rows))

    async def close(self) -> None:
        """Commit what is pending, and close the log."""
        self._hand_over()
        await asyncio.to_thread(self._log.close)

    def _add(self, data: bytes) -> AsyncCommit:
        if not self._gathered:
            self._loop.call_soon(self._hand_over)
        self._gathered.append(data)
        return self._commit

    def _hand_over(self) -> None:
        """Submit what is gathered to the log."""
        if not self._gathered:
            return
        gathered, self._gathered = self._gathered, []
        commit, self._commit = self._commit, AsyncCommit()
        try:
            written = self._log.submit_frames(gathered)
        except LogUnavailable as error:
            commit.resolve(error)
            return
        commit.expire(self._loop.call_later(self._timeout, self._expire, commit))
        written.add_done_callback(partial(self._wake, commit))

    def _wake(self, commit: AsyncCommit, written: Commit) -> None:
        """Runs in the log's commit thread."""
        self._loop.call_soon_threadsafe(self._resolve, commit, written.error)

    def _resolve(self, commit: AsyncCommit, error: LogUnavailable | None) -> None:
        self.fault = error
        commit.resolve(error)

    def _expire(self, commit: AsyncCommit) -> None:
        self._resolve(commit, LogUnavailable(f"the events were not on disk after {self._timeout:g} seconds"))
