"""The client of a device that decides on its own, online or not."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from potstill.client.device_store import Lock, StoredPolicy
from potstill.client.http import Http, problem_of
from potstill.client.periodic import Every
from potstill.client.queue import Queue, RefusedRow, Row, Survives
from potstill.client.retry import Retry
from potstill.client.sync import Sync, Synced
from potstill.client.wire import Observation, encode, now, reward_report
from potstill.errors import shown
from potstill.policy import Decision, Policy
from potstill.problem import InvalidContext, Problem


class EdgeClient:
    """Decides on the device, in microseconds, and keeps decisions and rewards until the service has them.

    The folder holds the policy file, so that the device starts without a network, and the queue. What `decide` or
    `reward` returned from is in the queue, and leaves it only when the service has acknowledged it; what is sent
    twice after a crash counts once. Safe to share between threads; one process per folder. There are no experiments on
    devices: all that they decide is the policy's, without an arm.

    >>> with EdgeClient("https://host/v1/video-upload", "edge", token) as client:  # doctest: +SKIP
    ...     client.start(every=60)
    ...     decision = client.decide({"bandwidth_kbps": 900, "connection": "4g", "hd_screen": True})
    ...     client.reward(decision.id, 1.0)

    Args:
        url: the problem's address.
        folder: of this device, or process.
        token: of the service, if it wants one.
        problem: policies must be for just this problem. If left out, for the one in the address, and from then on for
            the same one as the first policy.
        survives: what a decision survives once `decide` returned: a loss of ``"power"``, or the end of the
            ``"process"`` only, which is much faster.
        max_rows: that the queue may hold; then `decide` and `reward` raise `QueueFull`, and the oldest rows stay.
        retry: of each request.
        sleep: waits so many seconds.

    Raises:
        NoPolicy: the folder has no policy, and none could be downloaded.
        FolderInUse: another client works in the folder.
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
        self._every: Every | None = None
        with contextlib.ExitStack() as stack:  # what was opened is closed again if the rest fails
            stack.callback(self._http.close)
            stack.callback(Lock(folder).release)
            self._stored = StoredPolicy(folder / "current.policy", name, problem)
            self._queue = Queue(folder / "queue.sqlite", limit=max_rows, survives=survives)
            stack.callback(self._queue.close)
            self._sync = Sync(self._queue, self._stored, self._http, retry or Retry(timeout=30.0), sleep)
            if self._stored.current is None:
                self._sync.first_policy(url)
            self._opened = stack.pop_all()

    @property
    def policy(self) -> Policy:
        """The policy that decides now."""
        assert self._stored.current is not None  # from the start on
        return self._stored.current

    @property
    def queued(self) -> int:
        """Rows that wait to be sent."""
        return len(self._queue)

    @property
    def moved_aside(self) -> Path | None:
        """Where a corrupt queue was moved when this client started, if there was one."""
        return self._queue.moved_aside

    def decide(
        self,
        context: Mapping[str, Any],
        *,
        id: str | None = None,  # noqa: A002 - the word that callers know
        eligible: Sequence[str] | None = None,
        floor: float | None = None,
        unit: str | None = None,
    ) -> Decision:
        """Choose an action; the decision is in the queue when this returns.

        An id whose decision still waits in the queue gives that decision again, also if the policy has changed.

        Args:
            context: feature names and values.
            id: names the decision; a new one if left out.
            eligible: the actions that are allowed now.
            floor: the smallest propensity of an eligible action; the policy's own if left out.
            unit: whom the decision is about, such as a user.
        """
        if not isinstance(context, Mapping):
            raise InvalidContext(f"a context to be logged maps feature names to values, got {shown(context)}")
        decision = self.policy.decide(context, id=id, eligible=eligible, floor=floor)
        body = encode(_observation(decision, context, unit))
        earlier = self._queue.append(Row("decision", decision.id, body)).earlier
        return decision if earlier is None else _same_decision(earlier, body)

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
            id: of the decision.
            reward: a finite number.
            key: names the reward among several of one decision; a second one with the same key counts once.
            time: when it came; now if left out.
            metrics: other outcomes to watch in experiments, by name: ``{"watched": 3.2}``. Nothing is learnt from them.
        """
        self._queue.append(Row("reward", id, encode(reward_report(id, reward, key, time, metrics))))

    def sync(self) -> Synced:
        """Send what is in the queue, and look for a new policy.

        Raises:
            Unreachable: the service cannot be reached; what it has not acknowledged stays in the queue.
            Refused: the service refuses this client, such as for its token; likewise.
        """
        return self._sync.run()

    def start(self, every: float = 60.0) -> None:
        """Sync in the background, now and every so many seconds; less often while that fails."""
        if self._every is None:
            self._every = Every(every, self.sync)

    def stop(self) -> None:
        """End the background's work, after the batch under way."""
        if self._every is not None:
            self._sync.stopping.set()
            self._every.stop()
            self._sync.stopping.clear()
            self._every = None

    def refused(self) -> list[RefusedRow]:
        """Rows that the service did not take, with its reasons."""
        return self._queue.refused()

    def requeue_refused(self) -> None:
        """Send the rows that were refused again with the next `sync`."""
        self._queue.requeue_refused()

    def discard_refused(self) -> None:
        """Delete the rows that were refused."""
        self._queue.discard_refused()

    def close(self) -> None:
        """Stop; what waits in the queue waits for the next start."""
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


def _same_decision(earlier: bytes, later: bytes) -> Decision:
    """The decision that is in the queue, if it was asked for in the same words."""
    first, second = (msgspec.json.decode(body, type=Observation) for body in (earlier, later))
    if (first.context, first.eligible) != (second.context, second.eligible):
        raise ValueError(f"decision {first.id!r} was taken in another context, or with other eligible actions")
    eligible = None if first.eligible is None else tuple(first.eligible)
    return Decision(first.id, first.action, first.propensity, first.policy, eligible, first.floor)
