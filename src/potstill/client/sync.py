"""Synchronisation of a device: upload the queue, and download a new policy."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from potstill.client import calls
from potstill.client.device_clock import DeviceClock
from potstill.client.device_store import PolicyStore
from potstill.client.errors import NoPolicy, Refused, ServiceError, Unreachable
from potstill.client.http import Http
from potstill.client.queue import Kind, Queue, Row
from potstill.client.retry import Retry
from potstill.client.sansio import Call, Outcome, Reply, Send, run
from potstill.policy import InvalidPolicy

R = TypeVar("R")
#: Refusals that may concern a single row. Others, such as 401 and 404, concern the client.
ROW_REFUSALS = frozenset({400, 409, 413, 422})
T = TypeVar("T")
#: Rows and bytes of one upload. The service accepts 1,000 and 16 MiB, but only within ten seconds.
BATCH_ROWS, BATCH_BYTES = 1000, 1024 * 1024
#: Kinds of rows in the order in which they are sent.
KINDS: tuple[Kind, ...] = ("reward", "decision")
#: The smallest batch on a slow network.
FEWEST_ROWS = 10
log = logging.getLogger("potstill.client")


def upload(
    rows: Sequence[R],
    post: Callable[[Sequence[R]], Call[None]],
    accepted: Callable[[Sequence[R]], object],
    refused: Callable[[R, str], object],
) -> Call[None]:
    """Send rows; a refused batch is halved until the bad row is found.

    Args:
        rows: At least one row.
        post: Sends rows.
        accepted: Called with rows that the service has acknowledged.
        refused: Called with a row that the service has refused, and why.
    """
    try:
        yield from post(rows)
    except Refused as error:
        if error.status not in ROW_REFUSALS:
            raise
        if len(rows) == 1:
            refused(rows[0], str(error))
            return
        middle = len(rows) // 2
        yield from upload(rows[:middle], post, accepted, refused)
        yield from upload(rows[middle:], post, accepted, refused)
    else:
        accepted(rows)


class SyncReport(msgspec.Struct, frozen=True):
    """What a `sync` did.

    Attributes:
        decisions: Number of decisions that were acknowledged.
        rewards: Number of rewards that were acknowledged.
        refused: Number of rows that were refused; see `EdgeClient.refused`.
        policy: Version that decides now.
        policy_error: Why a downloaded policy is not used; None if there is no such problem. The old one stays in use.
    """

    decisions: int
    rewards: int
    refused: int
    policy: int
    policy_error: str | None = None


class _Progress:
    """Removes rows from the queue when they are sent, and counts them."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.counts = {"decision": 0, "reward": 0}
        self.refused = 0

    def accepted(self, rows: Sequence[Row]) -> None:
        self._queue.remove(rows)
        self.counts[rows[0].kind] += len(rows)

    def refuse(self, row: Row, reason: str) -> None:
        self._queue.set_aside(row, reason)
        self.refused += 1
        log.warning("a %s was refused and is set aside, %r: %s", row.kind, row.id, reason)


class Sync:
    """Uploads the queue and refreshes the policy; one thread at a time.

    Attributes:
        stopping: Set it to end an upload after the current batch; the rest stays in the queue.
    """

    def __init__(
        self, queue: Queue, stored: PolicyStore, http: Http, retry: Retry, sleep: Callable[[float], object]
    ) -> None:
        self._queue, self._stored, self._http = queue, stored, http
        self._retry, self._sleep = retry, sleep
        self._one = threading.Lock()
        self._batch = BATCH_ROWS
        self._clock = DeviceClock()
        self.stopping = threading.Event()

    def first_policy(self, url: str) -> None:
        """Download the first policy of a device."""
        try:
            self._stored.replace(self._run(calls.policy(self._retry)))
        except (ServiceError, InvalidPolicy) as error:
            raise NoPolicy(
                f"there is no policy to decide with: {self._stored.reason}, and {url} gave none: {error}. "
                "Start once with a network, or copy a policy file there"
            ) from error

    def run(self) -> SyncReport:
        """Send the rows in the queue, and download a new policy if there is one."""
        with self._one:
            error, refreshed = None, False
            if not self._clock.is_known:  # the first reply tells the service's time, which corrects the rows
                with suppress(Refused):  # it is raised after the upload
                    error, refreshed = self._refresh(), True
            sent = self._upload()
            error = error if refreshed else self._refresh()
        assert self._stored.current is not None  # set at the start
        return SyncReport(
            sent.counts["decision"], sent.counts["reward"], sent.refused, self._stored.current.version, error
        )

    def _upload(self) -> _Progress:
        """Send rewards, then decisions: one that was taken long ago is final when it arrives."""
        sent = _Progress(self._queue)
        last = self._queue.newest()
        for kind in KINDS:
            done = 0
            while not self.stopping.is_set() and (
                rows := self._queue.oldest(kind, self._batch, BATCH_BYTES, until=last, after=done)
            ):
                try:
                    self._run(upload(rows, self._post, sent.accepted, sent.refuse))
                except Unreachable:
                    self._batch = max(self._batch // 4, FEWEST_ROWS)  # the network may be too slow for this many
                    raise
                self._batch, done = min(self._batch * 2, BATCH_ROWS), rows[-1].number or 0
        return sent

    def _post(self, rows: Sequence[Row]) -> Call[None]:
        path, name = ("observe", "observations") if rows[0].kind == "decision" else ("reward", "rewards")
        bodies = [self._clock.corrected(row.body, row.taken) for row in rows]
        return calls.post_rows(path, name, bodies, self._retry)

    def _refresh(self) -> str | None:
        """Download a new policy if there is one; returns why it is not used, if so."""
        assert self._stored.etag is not None  # set at the start
        data = self._run(calls.changed_policy(self._stored.etag, self._retry))
        try:
            if data is not None:
                self._stored.replace(data)
        except InvalidPolicy as error:
            log.warning("a downloaded policy is not used: %s", error)
            return str(error)
        return None

    def _run(self, call: Call[T]) -> T:
        return run(call, self._send, self._sleep)

    def _send(self, step: Send) -> Outcome:
        outcome = self._http.send(step)
        if isinstance(outcome, Reply):
            self._clock.hear(outcome.headers.get("x-potstill-time"))
        return outcome
