"""One workspace as it is served: decide, log, wait for the disk, and fall back when something is wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from potstill.events import Event, InvalidEvent, LogUnavailable
from potstill.events.wal.segment import DecisionBlock, DecisionRow
from potstill.policy import InvalidPolicy
from potstill.problem import InvalidContext
from potstill.service.async_log import Durable, Group
from potstill.service.decide import Decider, Outcome, Questions
from potstill.service.experiment import Experiment, Experiments
from potstill.service.http import unavailable, unfit
from potstill.service.idempotency import Kept, Remembered
from potstill.service.metrics import Counting
from potstill.service.snapshot import Serving, Snapshot
from potstill.service.wire import Decided, DecideRequest, Requests
from potstill.workspace import Workspace
from potstill.workspace.config import InvalidConfig

_logger = logging.getLogger(__name__)


@dataclass
class Counts:
    """What a worker has taken up since it started."""

    decisions: int = 0
    rewards: int = 0


#: Gives the requests that are to be decided; the same ones each time.
Read = Callable[[], Sequence[DecideRequest]]


class _Pending(NamedTuple):
    """Decisions that wait for the disk: by what and when they were taken, and what is answered when they are on it."""

    snapshot: Snapshot
    experiment: Experiment | None
    replies: list[Decided]
    time: int
    group: Group


class Served:
    """One workspace as it is served, within one event loop; `open` it there, and `close` it.

    Args:
        workspace: what is served.
        counting: told of everything that is counted.
        patience: how long to wait for the disk, in seconds.
        remembered: how many decisions to know again by their ids.

    Raises:
        InvalidConfig: the configuration's fallback is no action of the problem.
    """

    def __init__(self, workspace: Workspace, counting: Counting, *, patience: float, remembered: int) -> None:
        _check_fallback(workspace)
        self.workspace, self.counting = workspace, counting
        self.name = workspace.problem.name
        self.requests = Requests(workspace.problem)
        self.serving = Serving(workspace, counting.reloaded)
        self.experiments = Experiments(workspace, counting.reloaded)
        self.counts = Counts()
        self._decider = Decider(workspace.problem, workspace.config.serve.fallback)
        self._remembered = Remembered(remembered)
        self._patience = patience
        self._log: Durable | None = None
        self._reloading = asyncio.Lock()

    async def open(self) -> None:
        """Take up the policy that serves and the experiment, and open the log.

        Raises:
            InvalidConfig: the experiment does not make sense.
        """
        await asyncio.to_thread(self.serving.start)
        await asyncio.to_thread(self.experiments.start)
        self._log = Durable(await asyncio.to_thread(self.workspace.event_log), self._patience)

    async def close(self) -> None:
        """Wait until all that was submitted is on disk, and let go of the log."""
        if self._log is not None:
            log, self._log = self._log, None
            await log.close()

    async def reload(self) -> None:
        """Look for a new version, mode or experiment."""
        async with self._reloading:
            await asyncio.to_thread(self.serving.reload)
            await asyncio.to_thread(self.experiments.reload)

    @property
    def log_fault(self) -> LogUnavailable | None:
        """Why the log took nothing the last time; None if it did."""
        return LogUnavailable("the log is not open") if self._log is None else self._log.fault

    async def decide(self, read: Read) -> list[Decided]:
        """Decide requests by one policy, and return when the decisions are on disk.

        A request whose id was decided before gets that decision again.

        Args:
            read: gives the requests. They are let go while the disk is waited for: the next batch is quicker in memory
                that the processor still has in its cache.

        Raises:
            Refusal: one of them does not fit, and nothing is logged; or there is nothing to answer with now.
        """
        asked = Questions(read())
        if not asked.requests:
            return []
        known = self._remembered.find(asked)
        if known:
            return await self._decide_again(asked, known, read)
        pending = self._take(asked)
        del asked
        return await self._settled(pending, read)

    async def log(self, events: Sequence[Event]) -> None:
        """Return when the events are on disk.

        Raises:
            Refusal: one does not fit the problem, and none is written; or the log cannot be written now.
        """
        try:
            await self._open_log.submit(events).wait()
        except (InvalidEvent, InvalidContext) as error:
            raise unfit(str(error)) from error
        except LogUnavailable as error:
            raise unavailable("log", _CANNOT_LOG) from error

    async def _decide_again(self, asked: Questions, known: Mapping[int, Kept], read: Read) -> list[Decided]:
        """Give decisions that are known, and take the others."""
        fresh = [place for place in range(len(asked)) if place not in known]
        rest = asked.at(fresh)
        taken = iter(await self._settled(self._take(rest), lambda: rest.requests) if fresh else ())
        try:
            for kept in known.values():
                if kept.group is not None:
                    await kept.group.wait()
        except LogUnavailable:  # who asked first is told so; who asks again is decided anew
            return await self.decide(read)
        return [known[place].reply if place in known else next(taken) for place in range(len(asked))]

    def _take(self, asked: Questions) -> _Pending:
        """Decide what was not decided before, and hand it to the log."""
        snapshot, experiment = self.serving.now, self.experiments.now
        if experiment is not None and not experiment.is_on(snapshot.mode):
            experiment = None
        try:
            replies, rows = (
                self._decided(snapshot, asked)
                if experiment is None
                else experiment.decide(snapshot, asked, self._decided, self._decider)
            )
            group = self._submitted(rows)
        except InvalidEvent as error:
            raise unfit(str(error)) from error
        self._remembered.add(asked.digests, replies, group)
        return _Pending(snapshot, experiment, replies, rows[0].time, group)

    async def _settled(self, pending: _Pending, read: Read) -> list[Decided]:
        """What is answered, once it is known whether the decisions are on disk."""
        replies = pending.replies
        try:
            await pending.group.wait()
        except LogUnavailable as error:
            replies = self._fallen_back(pending, Questions(read()), error)
        self.counts.decisions += len(replies)
        if pending.experiment is None:
            self.counting.decided(replies[0].mode, replies[0].policy, len(replies))
        else:
            pending.experiment.count(replies, self.counting)
        return replies

    def _submitted(self, rows: Sequence[DecisionRow | DecisionBlock]) -> Group:
        try:
            return self._open_log.submit_rows(rows)
        except LogUnavailable as error:
            return Group.failed(error)

    def _decided(self, snapshot: Snapshot, asked: Questions) -> Outcome:
        try:
            outcome = self._decider.decide(snapshot, asked)
        except InvalidPolicy as error:
            _logger.error("%s: the policy cannot decide: %s", self.name, error)
            outcome = self._decider.fall_back(snapshot, asked)
        if outcome is None:
            raise unavailable("policy", "there is no sound policy to decide with; try again, or roll back to one")
        return outcome

    def _fallen_back(self, pending: _Pending, asked: Questions, error: LogUnavailable) -> list[Decided]:
        """What is answered instead of decisions that are not on disk.

        They may get there all the same, so that the log is told what was answered, in case it takes it: of decisions
        of one id the first by time counts, and these are a microsecond earlier.
        """
        ids = [reply.id for reply in pending.replies]
        if pending.experiment is not None:
            asked.arms = [reply.arm for reply in pending.replies]
        outcome = self._decider.fall_back(pending.snapshot, asked, ids=ids, time=pending.time - 1)
        if outcome is None:
            raise unavailable("log", _CANNOT_LOG) from error
        self._submitted(outcome.rows)
        self._remembered.add(asked.digests, outcome.replies, None)
        return outcome.replies

    @property
    def _open_log(self) -> Durable:
        if self._log is None:
            raise LogUnavailable("the service is closing")
        return self._log


_CANNOT_LOG = "the log cannot be written now, so that nothing is acknowledged; try again"


def _check_fallback(workspace: Workspace) -> None:
    fallback, actions = workspace.config.serve.fallback, workspace.problem.actions.names
    if fallback is not None and fallback not in actions:
        raise InvalidConfig(
            f"{workspace.url}: serve.fallback must be an action, one of {', '.join(actions)}; got {fallback!r}"
        )
