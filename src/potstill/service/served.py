"""One workspace as it is served: decide, log, wait for the disk, and fall back when something is wrong."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from potstill.events import Event, InvalidEvent, LogUnavailable
from potstill.policy import InvalidPolicy
from potstill.problem import InvalidContext
from potstill.service.counting import Counting
from potstill.service.deciding import Decider, Outcome
from potstill.service.durable import Durable
from potstill.service.errors import unavailable, unfit
from potstill.service.questions import Questions
from potstill.service.remembered import Remembered
from potstill.service.serving import Serving, Snapshot
from potstill.service.wire import Decided, DecideRequest, Requests
from potstill.workspace import Workspace
from potstill.workspace.config import InvalidConfig

_logger = logging.getLogger(__name__)


@dataclass
class Counts:
    """What a worker has taken up since it started."""

    decisions: int = 0
    rewards: int = 0


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
        self.counts = Counts()
        self._decider = Decider(workspace.problem, workspace.config.serve.fallback)
        self._remembered = Remembered(remembered)
        self._patience = patience
        self._log: Durable | None = None
        self._reloading = asyncio.Lock()

    async def open(self) -> None:
        """Take up the policy that serves, and open the log."""
        await asyncio.to_thread(self.serving.start)
        self._log = Durable(await asyncio.to_thread(self.workspace.event_log), self._patience)

    async def close(self) -> None:
        """Wait until all that was submitted is on disk, and let go of the log."""
        if self._log is not None:
            log, self._log = self._log, None
            await log.close()

    async def reload(self) -> None:
        """Look for a new version or mode."""
        async with self._reloading:
            await asyncio.to_thread(self.serving.reload)

    @property
    def log_fault(self) -> LogUnavailable | None:
        """Why the log took nothing the last time; None if it did."""
        return LogUnavailable("the log is not open") if self._log is None else self._log.fault

    async def decide(self, requests: Sequence[DecideRequest]) -> list[Decided]:
        """Decide all of them by one policy, and return when the decisions are on disk.

        A request whose id was decided before gets that decision again.

        Raises:
            Refusal: one of them does not fit, and nothing is logged; or there is nothing to answer with now.
        """
        asked = Questions(requests)
        known = self._remembered.find(asked)
        if not known:
            return await self._take(asked)
        fresh = [place for place in range(len(asked)) if place not in known]
        taken = iter(await self._take(asked.at(fresh)))
        try:
            for kept in known.values():
                if kept.group is not None:
                    await kept.group.wait()
        except LogUnavailable:  # who asked first is told so; who asks again is decided anew
            return await self.decide(requests)
        return [known[place].reply if place in known else next(taken) for place in range(len(asked))]

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

    async def _take(self, asked: Questions) -> list[Decided]:
        """Decide what was not decided before."""
        if not asked:
            return []
        snapshot = self.serving.now
        try:
            replies, rows = outcome = self._decided(snapshot, asked)
            group = self._open_log.submit_rows(rows)
            self._remembered.add(asked.digests, replies, group)
            await group.wait()
        except InvalidEvent as error:
            raise unfit(str(error)) from error
        except LogUnavailable as error:
            replies = self._fallen_back(snapshot, asked, outcome, error)
            self._remembered.add(asked.digests, replies, None)
        self.counts.decisions += len(replies)
        self.counting.decided(replies[0].mode, replies[0].policy, len(replies))
        return replies

    def _decided(self, snapshot: Snapshot, asked: Questions) -> Outcome:
        try:
            outcome = self._decider.decide(snapshot, asked)
        except InvalidPolicy as error:
            _logger.error("%s: the policy cannot decide: %s", self.name, error)
            outcome = self._decider.fall_back(snapshot, asked)
        if outcome is None:
            raise unavailable("policy", "there is no sound policy to decide with; try again, or roll back to one")
        return outcome

    def _fallen_back(
        self, snapshot: Snapshot, asked: Questions, tried: Outcome, error: LogUnavailable
    ) -> list[Decided]:
        """What is answered instead of decisions that are not on disk.

        They may get there all the same, so that the log is told what was answered, in case it takes it: of decisions
        of one id the first by time counts, and these are a microsecond earlier.
        """
        outcome = self._decider.fall_back(snapshot, asked, instead_of=tried)
        if outcome is None:
            raise unavailable("log", _CANNOT_LOG) from error
        with contextlib.suppress(LogUnavailable):
            self._open_log.submit_rows(outcome.rows)
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
