"""One problem as a service: decide, log, wait for the disk, and fall back on a failure."""

from __future__ import annotations

import asyncio
import logging
import subprocess
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from potstill.errors import InvalidAction
from potstill.events import DecisionBlock, DecisionRow, Event, InvalidEvent, LogUnavailable
from potstill.policy import InvalidPolicy
from potstill.problem import InvalidContext, Problem
from potstill.service.async_log import AsyncCommit, AsyncLog
from potstill.service.decide import (
    Batch,
    Decider,
    Decisions,
    check_own_actions,
    context_digests,
    decide_parts,
    values_of,
)
from potstill.service.design import DesignWatcher
from potstill.service.experiment import Experiment, ExperimentWatcher
from potstill.service.http import unavailable, unfit
from potstill.service.idempotency import CachedDecision, IdempotencyCache
from potstill.service.metrics import Recorder
from potstill.service.problem_watcher import ProblemWatcher
from potstill.service.queries import Queries
from potstill.service.recall import Recall
from potstill.service.shared_ids import SharedIds
from potstill.service.snapshot import Snapshot, SnapshotWatcher
from potstill.service.wire import DecideReply, DecideRequest, Requests
from potstill.workspace import Workspace, fallback_of

_logger = logging.getLogger(__name__)


@dataclass
class Counts:
    """What a worker has logged since it started."""

    decisions: int = 0
    rewards: int = 0


#: Gives the requests to decide; the same ones each time.
Read = Callable[[], Sequence[DecideRequest]]


class _Pending(NamedTuple):
    """Decisions that wait for the disk: how and when they were taken, their replies, and whether in several ways."""

    snapshot: Snapshot
    experiment: Experiment | None
    replies: list[DecideReply]
    time: int
    mixed: bool
    commit: AsyncCommit


class ProblemService:
    """One workspace as a service, within one event loop; `open` it there, and `close` it.

    Args:
        workspace: The workspace.
        recorder: Counts decisions, rewards and refusals.
        log_timeout: Seconds to wait for the disk.
        idempotency_size: Number of decisions to recognise by their ids.
        shared: Ids that the workers of the service have decided; None for a single worker.

    Raises:
        InvalidConfig: The configured fallback is not an action of the problem.
    """

    def __init__(
        self,
        workspace: Workspace,
        recorder: Recorder,
        *,
        log_timeout: float,
        idempotency_size: int,
        shared: SharedIds | None = None,
    ) -> None:
        self.workspace, self.recorder = workspace, recorder
        self.name = workspace.problem.name
        self.requests = Requests(workspace.problem)
        self.snapshots = SnapshotWatcher(workspace, recorder.count_reload)
        self.experiments = ExperimentWatcher(workspace, recorder.count_reload)
        self.designs = DesignWatcher(workspace, recorder.count_reload)
        self.problems = ProblemWatcher(workspace)
        self.counts = Counts()
        #: Requests that are being answered: a service that another one follows is closed when there are none.
        self.users = 0
        #: Follows a change of the actions at once; returns the service that serves from now on. Set by `App`.
        self.follow: Callable[[], Awaitable[ProblemService]] = self._follow_nothing
        self.queries = Queries(workspace.url)
        self.children: list[subprocess.Popen[bytes]] = []  # they end when their standard input does
        self._decider = Decider(workspace.problem, fallback_of(workspace))
        self._cache, self._size = IdempotencyCache(idempotency_size), idempotency_size
        self._recall = Recall(workspace, shared)
        self._log_timeout = log_timeout
        self._log: AsyncLog | None = None
        self._reloading = asyncio.Lock()
        self._inherits = False  # the decisions of another service

    async def open(self) -> None:
        """Load the serving policy, the experiment, the design and the last decisions, and open the log.

        Raises:
            InvalidConfig: The experiment is invalid.
        """
        await asyncio.to_thread(self.snapshots.start)
        await asyncio.to_thread(self.experiments.start)
        await asyncio.to_thread(self.designs.reload)
        if not self._inherits:
            self._cache.recall(await asyncio.to_thread(self._recall.last, self._size), self.workspace.problem.actions)
        self._log = AsyncLog(await asyncio.to_thread(self.workspace.event_log), self._log_timeout)

    def successor(self, problem: Problem) -> ProblemService:
        """What serves after the actions have changed; it shares what was decided, counted and started here.

        Requests that this service has taken are answered by it: a request sees one list of actions.
        """
        after = ProblemService(
            Workspace(self.workspace.url, problem, self.workspace.config),
            self.recorder,
            log_timeout=self._log_timeout,
            idempotency_size=self._size,
            shared=self._recall.shared,
        )
        after.counts, after.children, after._cache = self.counts, self.children, self._cache
        after._inherits = True
        return after

    async def _follow_nothing(self) -> ProblemService:
        await self.reload()
        return self

    def hand_over(self) -> None:
        """Leave what was started here to the successor, so that `close` does not end it."""
        self.children = []

    async def close(self) -> None:
        """Wait until all submitted events are on disk, and close the log."""
        await self.queries.close()
        for child in self.children:
            if child.stdin is not None:
                child.stdin.close()
            child.terminate()
            await asyncio.to_thread(child.wait)
        if self._log is not None:
            log, self._log = self._log, None
            await log.close()

    async def reload(self) -> None:
        """Look for a new version, mode, experiment, design or problem."""
        async with self._reloading:
            await asyncio.to_thread(self.snapshots.reload)
            if self.snapshots.following is not None:
                return
            await asyncio.to_thread(self.experiments.reload)
            await asyncio.to_thread(self.designs.reload)
            await asyncio.to_thread(self.problems.reload, self.snapshots.current.policy)

    @property
    def log_fault(self) -> LogUnavailable | None:
        """Why the last write to the log failed; None if it succeeded."""
        return LogUnavailable("the log is not open") if self._log is None else self._log.fault

    async def decide(self, read: Read) -> list[DecideReply]:
        """Decide requests by one policy, and return when the decisions are on disk.

        A request whose id was decided before gets that decision again.

        Args:
            read: Gives the requests. They are released while the disk is waited for: the next batch is faster in memory
                that is still in the processor's cache.

        Raises:
            Refusal: A request does not fit, and nothing is logged; or neither policy nor fallback is available.
        """
        batch = Batch(read())
        if not batch.requests:
            return []
        cached = self._cache.find(batch)
        if self._recall.shared is not None and len(cached) < len(batch):
            cached = await self._find_shared(batch, cached, self._recall.shared)
        if cached:
            return await self._decide_again(batch, cached, read)
        pending = self._decide(batch)
        del batch
        return await self._reply(pending, read)

    def decide_one(self, request: DecideRequest) -> Awaitable[list[DecideReply]]:
        """What `decide` does with one request, in half the time if it is new and the policy alone decides it."""

        def read() -> Sequence[DecideRequest]:
            return [request]

        pending = self._decide_new(request)
        return self.decide(read) if pending is None else self._reply(pending, read)

    async def log(self, events: Sequence[Event]) -> None:
        """Return when the events are on disk.

        Raises:
            Refusal: One does not fit the problem, and none is written; or the log is unavailable.
        """
        try:
            await self._open_log.submit(events).wait()
        except (InvalidEvent, InvalidContext) as error:
            raise unfit(str(error)) from error
        except LogUnavailable as error:
            raise unavailable("log", _LOG_UNAVAILABLE) from error

    def draw(self, request: DecideRequest) -> Decisions:
        """Decide one request without logging it, for `log_drawn`.

        Raises:
            Refusal: The request does not fit; or neither policy nor fallback is available.
        """
        snapshot = self.snapshots.current
        try:
            return self._decide_each(snapshot, self._running(snapshot), Batch([request]))
        except (InvalidEvent, InvalidAction) as error:
            raise unfit(str(error)) from error

    async def log_drawn(self, decisions: Decisions) -> None:
        """Log decisions that were drawn before; return when they are on disk.

        Raises:
            Refusal: The log is unavailable.
        """
        try:
            await self._open_log.submit_rows(decisions.rows).wait()
        except LogUnavailable as error:
            raise unavailable("log", _LOG_UNAVAILABLE) from error
        self.counts.decisions += len(decisions.replies)
        for reply in decisions.replies:
            self.recorder.count_decisions(reply.mode, reply.policy)

    async def has_decided(self, name: str) -> bool:
        """Whether the decision of an id is logged, as far as this machine's memory reaches; `knows` may err."""
        return self._cache.knows(name) or bool(await self._recall.find([name]))

    async def _decide_again(self, batch: Batch, cached: Mapping[int, CachedDecision], read: Read) -> list[DecideReply]:
        """Repeat cached decisions, and take the others."""
        fresh = [place for place in range(len(batch)) if place not in cached]
        rest = batch.at(fresh)
        replies = iter(await self._reply(self._decide(rest), lambda: rest.requests) if fresh else ())
        try:
            for one in cached.values():
                if one.commit is not None:
                    await one.commit.wait()
        except LogUnavailable:  # the first caller gets the error; a retry is decided again
            return await self.decide(read)
        return [cached[place].reply if place in cached else next(replies) for place in range(len(batch))]

    async def _find_shared(
        self, batch: Batch, cached: dict[int, CachedDecision], shared: SharedIds
    ) -> dict[int, CachedDecision]:
        """Cached decisions, and those that another worker has taken, or this one long ago."""
        ids = [name for place in shared.seen(batch.ids) if place not in cached and (name := batch.ids[place])]
        if not ids:
            return cached
        self._cache.recall(await self._recall.find(ids), self.workspace.problem.actions)
        return self._cache.find(batch)

    def _decide(self, batch: Batch) -> _Pending:
        """Decide requests that are not cached, and submit the decisions to the log."""
        snapshot = self.snapshots.current
        experiment = self._running(snapshot)
        try:
            decisions = self._decide_each(snapshot, experiment, batch)
            return self._log_decisions(snapshot, experiment, decisions, batch.ids, batch.digests)
        except (InvalidEvent, InvalidAction) as error:
            raise unfit(str(error)) from error

    def _running(self, snapshot: Snapshot) -> Experiment | None:
        """The experiment, if it runs in this mode."""
        experiment = self.experiments.current
        return experiment if experiment is not None and experiment.is_running(snapshot.mode) else None

    def _decide_new(self, request: DecideRequest) -> _Pending | None:
        """Decide a new request by the policy, and submit the decision; None if something else has to be asked first."""
        snapshot = self.snapshots.current
        if snapshot.policy is None or snapshot.mode != "online" or _states_own(request):
            return None
        if self.experiments.current is not None or self.designs.current is not None or self.knows(request.id):
            return None
        values, eligible = values_of(request.context), None if request.eligible is None else [request.eligible]
        try:
            decisions = self._decider.decide_one(snapshot.policy, request, values)
            return self._log_decisions(snapshot, None, decisions, [request.id], context_digests([values], eligible))
        except (InvalidEvent, InvalidAction) as error:
            raise unfit(str(error)) from error
        except InvalidPolicy:
            return None  # `decide` falls back

    def knows(self, name: str | None) -> bool:
        """Whether an id may have been decided before, by this worker or another."""
        if name is None:
            return False
        shared = self._recall.shared
        return self._cache.knows(name) or (shared is not None and shared.has(name))

    def _log_decisions(
        self,
        snapshot: Snapshot,
        experiment: Experiment | None,
        decisions: Decisions,
        ids: Sequence[str | None],
        digests: Sequence[int],
    ) -> _Pending:
        """Submit decisions to the log, and cache them."""
        replies, rows = decisions
        commit = self._submit(rows)
        self._cache.add(digests, replies, commit)
        if self._recall.shared is not None:
            self._recall.shared.add(ids)
        return _Pending(snapshot, experiment, replies, rows[0].time, len(rows) > 1, commit)

    def _decide_each(self, snapshot: Snapshot, experiment: Experiment | None, batch: Batch) -> Decisions:
        """Decide each request: by the initial design if its unit has a point there, else by its arm or the policy."""

        def others(part: Batch) -> Decisions:
            if experiment is None:
                return self._decide_by(snapshot, part)
            return experiment.decide(snapshot, part, self._decide_by, self._decider)

        design = self.designs.current
        if design is None or snapshot.mode != "online":
            return others(batch)
        check_own_actions(snapshot, batch.requests)
        handed = design.hand_out(batch)
        if not handed:
            return others(batch)
        rest = [place for place in range(len(batch)) if place not in handed]
        places = list(handed)

        def by_design(part: Batch) -> Decisions:
            return self._decider.fixed(snapshot, part, [handed[place] for place in places], mode="design")

        return decide_parts(batch, [(places, by_design), (rest, others)])

    async def _reply(self, pending: _Pending, read: Read) -> list[DecideReply]:
        """The replies, once the outcome of the commit is known."""
        replies = pending.replies
        try:
            await pending.commit.wait()
        except LogUnavailable as error:
            replies = self._fall_back(pending, Batch(read()), error)
        self.counts.decisions += len(replies)
        if pending.mixed:
            for (mode, version), number in Counter((reply.mode, reply.policy) for reply in replies).items():
                self.recorder.count_decisions(mode, version, number)
        else:
            self.recorder.count_decisions(replies[0].mode, replies[0].policy, len(replies))
        if pending.experiment is not None:
            pending.experiment.count(replies, self.recorder)
        return replies

    def _submit(self, rows: Sequence[DecisionRow | DecisionBlock]) -> AsyncCommit:
        try:
            return self._open_log.submit_rows(rows)
        except LogUnavailable as error:
            return AsyncCommit.failed(error)

    def _decide_by(self, snapshot: Snapshot, batch: Batch) -> Decisions:
        try:
            decisions = self._decider.decide(snapshot, batch)
        except InvalidPolicy as error:
            _logger.error("%s: the policy cannot decide: %s", self.name, error)
            decisions = self._decider.fall_back(snapshot, batch)
        if decisions is None:
            raise unavailable("policy", "no usable policy is loaded; retry, or roll back to a usable version")
        return decisions

    def _fall_back(self, pending: _Pending, batch: Batch, error: LogUnavailable) -> list[DecideReply]:
        """Replies in place of decisions that are not on disk.

        Those decisions may still reach the disk. So the fallback is logged too, if the log accepts it: of several
        decisions with one id the earliest counts, and the fallback is a microsecond earlier.
        """
        ids = [reply.id for reply in pending.replies]
        if pending.experiment is not None:
            batch.arms = [reply.arm for reply in pending.replies]
        decisions = self._decider.fall_back(pending.snapshot, batch, ids=ids, time=pending.time - 1)
        if decisions is None:
            raise unavailable("log", _LOG_UNAVAILABLE) from error
        self._submit(decisions.rows)
        self._cache.add(batch.digests, decisions.replies, None)
        return decisions.replies

    @property
    def _open_log(self) -> AsyncLog:
        if self._log is None:
            raise LogUnavailable("the service is closing")
        return self._log


def _states_own(request: DecideRequest) -> bool:
    """Whether a request states a choice of the caller's own."""
    return request.action is not None or request.propensity is not None


_LOG_UNAVAILABLE = "event log unavailable; nothing was recorded; retry"
