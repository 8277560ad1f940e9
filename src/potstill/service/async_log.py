"""The event log for an event loop: one wake-up of the loop for each group that the log commits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from potstill.events import Commit, DecisionBlock, Event, EventLog, LogUnavailable, Row


class AsyncCommit:
    """A group of events on its way to disk, to be awaited.

    Attributes:
        done: Whether the outcome is known.
        error: Why the events are not acknowledged; None if they are, or if the outcome is not known.
    """

    __slots__ = ("_timer", "_waiters", "done", "error")

    def __init__(self, timer: asyncio.TimerHandle | None) -> None:
        self._timer, self.done = timer, False
        self.error: LogUnavailable | None = None
        self._waiters: list[asyncio.Future[None]] = []

    @classmethod
    def failed(cls, error: LogUnavailable) -> AsyncCommit:
        """A commit of events that the log refused."""
        commit = cls(None)
        commit.resolve(error)
        return commit

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

    Args:
        log: The log; `close` closes it.
        timeout: Seconds to wait for the disk.
    """

    def __init__(self, log: EventLog, timeout: float) -> None:
        self._log, self._timeout = log, timeout
        self._loop = asyncio.get_running_loop()
        self._commits: dict[Commit, AsyncCommit] = {}
        self.fault: LogUnavailable | None = None  # of the last group

    def submit(self, events: Sequence[Event]) -> AsyncCommit:
        """Submit events without waiting.

        Raises:
            InvalidEvent: One does not fit the problem; none is written.
            LogUnavailable: The log accepts nothing now.
        """
        return self._commit(self._log.submit(*events))

    def submit_rows(self, rows: Iterable[Row | DecisionBlock]) -> AsyncCommit:
        """Submit rows that have been checked."""
        return self._commit(self._log.submit_rows(rows))

    async def close(self) -> None:
        """Commit what is pending, and close the log."""
        await asyncio.to_thread(self._log.close)

    def _commit(self, commit: Commit) -> AsyncCommit:
        known = self._commits.get(commit)
        if known is None:
            known = AsyncCommit(self._loop.call_later(self._timeout, self._expire, commit))
            self._commits[commit] = known
            commit.add_done_callback(self._wake)
        return known

    def _wake(self, commit: Commit) -> None:
        """Runs in the log's commit thread."""
        self._loop.call_soon_threadsafe(self._resolve, commit)

    def _resolve(self, commit: Commit) -> None:
        self.fault = commit.error
        self._commits.pop(commit).resolve(commit.error)

    def _expire(self, commit: Commit) -> None:
        self.fault = LogUnavailable(f"the events were not on disk after {self._timeout:g} seconds")
        self._commits[commit].resolve(self.fault)
