"""Waiting, in an event loop, for events to be on disk: one wake-up of the loop for each group that the log syncs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from potstill.events import Commit, Event, EventLog, LogUnavailable
from potstill.events.wal.segment import DecisionBlock, Row


class Group:
    """Events that go to disk together.

    Attributes:
        done: whether it is decided.
        error: why they are not acknowledged; None if they are, or if it is not decided.
    """

    __slots__ = ("_timer", "_waiting", "done", "error")

    def __init__(self, timer: asyncio.TimerHandle | None) -> None:
        self._timer, self.done = timer, False
        self.error: LogUnavailable | None = None
        self._waiting: list[asyncio.Future[None]] = []

    @classmethod
    def failed(cls, error: LogUnavailable) -> Group:
        """Events that the log has not taken."""
        group = cls(None)
        group.decide(error)
        return group

    async def wait(self) -> None:
        """Return when the events are on disk; `LogUnavailable` if they are not going to be, or not in time."""
        if not self.done:
            # One future for each: a task that is cancelled cancels what it waits for.
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            await future
        if self.error is not None:
            raise LogUnavailable(*self.error.args) from self.error

    def decide(self, error: LogUnavailable | None) -> None:
        """Wake all that wait. What was decided stays: events that are late are not acknowledged any more."""
        if self.done:
            return
        self.done, self.error = True, error
        if self._timer is not None:
            self._timer.cancel()
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()


class Durable:
    """An event log as an event loop needs it; to be used within that loop only.

    Args:
        log: where events go; it is closed by `close`.
        patience: how long to wait for the disk, in seconds.
    """

    def __init__(self, log: EventLog, patience: float) -> None:
        self._log, self._patience = log, patience
        self._loop = asyncio.get_running_loop()
        self._groups: dict[Commit, Group] = {}
        self.fault: LogUnavailable | None = None  # of the last group

    def submit(self, events: Sequence[Event]) -> Group:
        """Hand events over; wait for the group to know them on disk.

        Raises:
            InvalidEvent: one does not fit the problem; none is written.
            LogUnavailable: the log takes nothing now.
        """
        return self._group(self._log.submit(*events))

    def submit_rows(self, rows: Iterable[Row | DecisionBlock]) -> Group:
        """The same for rows, which have been checked."""
        return self._group(self._log.submit_rows(rows))

    async def close(self) -> None:
        """Commit what is pending, and close the log."""
        await asyncio.to_thread(self._log.close)

    def _group(self, commit: Commit) -> Group:
        group = self._groups.get(commit)
        if group is None:
            group = self._groups[commit] = Group(self._loop.call_later(self._patience, self._late, commit))
            commit.add_done_callback(self._wake)
        return group

    def _wake(self, commit: Commit) -> None:
        """From the log's thread."""
        self._loop.call_soon_threadsafe(self._decide, commit)

    def _decide(self, commit: Commit) -> None:
        self.fault = commit.error
        self._groups.pop(commit).decide(commit.error)

    def _late(self, commit: Commit) -> None:
        self.fault = LogUnavailable(f"the disk has not taken the events in {self._patience:g} seconds")
        self._groups[commit].decide(self.fault)
