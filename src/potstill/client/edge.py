"""The client of a device that decides by itself, online or offline."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from potstill.client.device_clock import uptime
from potstill.client.device_store import FolderLock, PolicyStore
from potstill.client.http import Http, problem_of
from potstill.client.periodic import Periodic
from potstill.client.queue import Queue, RefusedRow, Row, Survives
from potstill.client.retry import Retry
from potstill.client.sync import Sync, SyncReport
from potstill.client.wire import Observation, encode, now, reward_report
from potstill.errors import shown
from potstill.policy import Decision, Policy
from potstill.problem import InvalidContext, Problem
from potstill.spaces import ActionSpace


class EdgeClient:
    """Decides on the device, in microseconds, and queues decisions and rewards until the service has them.

    The folder holds the policy file, so that the device starts without a network, and the queue. When `decide` or
    `reward` returns, the row is in the queue; it leaves it when the service has acknowledged it. What is sent twice
    after a crash counts once. Thread-safe; one process per folder. Devices take no part in experiments.

    >>> with EdgeClient("https://host/v1/video-upload", "edge", token) as client:  # doctest: +SKIP
    ...     client.start(every=60)
    ...     decision = client.decide({"bandwidth_kbps": 900, "connection": "4g", "hd_screen": True})
    ...     client.reward(decision.id, 1.0)

    Args:
        url: Address of the problem.
        folder: Folder of this device or process.
        token: Token of the service, if it needs one.
        problem: Problem that policies must be for. Default: the name in the address, and the problem of the first
            policy from then on; actions of it may be retired and come back.
        survives: What a decision survives once `decide` has returned: a ``"power"`` loss, or only the end of the
            ``"process"``, which is much faster.
        max_rows: The most rows in the queue; beyond that, `decide` and `reward` raise `QueueFull`.
        retry: Retry policy of each request.
        sleep: Waits for a number of seconds.

    Raises:
        NoPolicy: The folder has no policy, and none could be downloaded.
        FolderInUse: Another client uses the folder.
    """

    def __init__(
        self,
        url: str,
        folder: str | Path,
        token: str | None = None,
        *,
        problem: Problem | None = None,
        survives: Survives = "power",
        max_rows: int = 500_000,
        retry: Retry | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        name = problem_of(url)
        folder = Path(folder)
        self._http = Http(url, token)
        self._every: Periodic | None = None
        with contextlib.ExitStack() as stack:  # closes what was opened if the rest fails
            stack.callback(self._http.close)
            stack.callback(FolderLock(folder).release)
            self._stored = PolicyStore(folder / "current.policy", name, problem)
            self._queue = Queue(folder / "queue.sqlite", limit=max_rows, survives=survives)
            stack.callback(self._queue.close)
            self._sync = Sync(self._queue, self._stored, self._http, retry or Retry(timeout=30.0), sleep)
            if self._stored.current is None:
                self._sync.first_policy(url)
            self._opened = stack.pop_all()

    @property
    def policy(self) -> Policy:
        """The current policy."""
        assert self._stored.current is not None  # set at the start
        return self._stored.current

    @property
    def queued(self) -> int:
        """Number of rows in the queue."""
        return len(self._queue)

    @property
    def moved_aside(self) -> Path | None:
        """Where a corrupt queue was moved when this client started; None if there was none."""
        return self._queue.moved_aside

    def decide(
        self,
        context: Mapping[str, Any],
        *,
        id: str | None = None,  # noqa: A002 - the name in the API
        eligible: Any = None,
        floor: float | None = None,
        unit: str | None = None,
    ) -> Decision:
        """Choose an action; the decision is in the queue when this returns.

        An id whose decision is still in the queue gives that decision again, even if the policy has changed.

        Args:
            context: Feature names and values.
            id: Id of the decision; generated if left out.
            eligible: The actions that are allowed now; an interval ``[from, to]`` if the action is a number.
            floor: The smallest propensity of an eligible action, or the share of uniform decisions if the action is a
                number; the policy's own if left out.
            unit: Whom the decision is about, such as a user.
        """
        if not isinstance(context, Mapping):
            raise InvalidContext(f"a context to be logged maps feature names to values, got {shown(context)}")
        decision = self.policy.decide(context, id=id, eligible=eligible, floor=floor)
        body = encode(_observation(decision, context, unit))
        earlier = self._queue.append(Row("decision", decision.id, body, uptime())).earlier
        return decision if earlier is None else _same_decision(earlier, body, self.policy.problem.actions)

    def reward(
        self,
        id: str,  # noqa: A002
        reward: float,
        *,
        key: str | None = None,
        time: datetime | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Report a reward; it is in the queue when this returns.

        Args:
            id: Id of the decision.
            reward: A finite number.
            key: Name of the reward among those of one decision; a second one with the same key counts once.
            time: When it came; now if left out.
            metrics: Other outcomes that experiments report, by name: ``{"watched": 3.2}``. Policies do not learn from
                them.
        """
        taken = uptime() if time is None else None
        self._queue.append(Row("reward", id, encode(reward_report(id, reward, key, time, metrics)), taken))

    def sync(self) -> SyncReport:
        """Send the queue, and download a new policy if there is one.

        Raises:
            Unreachable: The service cannot be reached; what it has not acknowledged stays in the queue.
            Refused: The service refuses this client, for example its token; the queue stays too.
        """
        return self._sync.run()

    def start(self, every: float = 60.0) -> None:
        """Sync in the background, now and every `every` seconds; less often while it fails."""
        if self._every is None:
            self._every = Periodic(every, self.sync)

    def stop(self) -> None:
        """Stop syncing in the background, after the current batch."""
        if self._every is not None:
            self._sync.stopping.set()
            self._every.stop()
            self._sync.stopping.clear()
            self._every = None

    def refused(self) -> list[RefusedRow]:
        """Rows that the service refused, with its reasons."""
        return self._queue.refused()

    def requeue_refused(self) -> None:
        """Put refused rows back into the queue."""
        self._queue.requeue_refused()

    def discard_refused(self) -> None:
        """Delete refused rows."""
        self._queue.discard_refused()

    def close(self) -> None:
        """Stop; the queue stays for the next start."""
        self.stop()
        self._opened.close()

    def __enter__(self) -> EdgeClient:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()


def _observation(decision: Decision, context: Mapping[str, Any], unit: str | None) -> Observation:
    return Observation(
        id=decision.id,
        context=context,
        action=decision.action,
        propensity=decision.propensity,
        policy=decision.policy,
        time=now(),
        eligible=decision.eligible,
        floor=decision.floor,
        unit=unit,
    )


def _same_decision(earlier: bytes, later: bytes, space: ActionSpace) -> Decision:
    """The decision in the queue, if it has the same context and restriction."""
    first, second = (msgspec.json.decode(body, type=Observation) for body in (earlier, later))
    if (first.context, first.eligible) != (second.context, second.eligible):
        raise ValueError(
            f"decision {first.id!r} was taken in another context or with other eligible actions; use a new id"
        )
    eligible = None if first.eligible is None else space.restrict(first.eligible).value
    return Decision(first.id, space.parse(first.action), first.propensity, first.policy, eligible, first.floor)
