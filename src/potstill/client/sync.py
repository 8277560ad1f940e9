"""What a device and its service have to tell each other when there is a network."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from potstill.client import calls
from potstill.client.device_store import StoredPolicy
from potstill.client.errors import NoPolicy, Refused, ServiceError, Unreachable
from potstill.client.http import Http
from potstill.client.queue import Queue, Row
from potstill.client.retry import Retry
from potstill.client.sansio import Call, run
from potstill.policy import InvalidPolicy

R = TypeVar("R")
#: Refusals that may be about a single row. Others, such as 401 and 404, are about the client.
ABOUT_ROWS = frozenset({400, 409, 413, 422})


T = TypeVar("T")
#: Rows and bytes of one upload; the service takes 1,000 and 16 MiB, but waits only ten seconds for them.
BATCH_ROWS, BATCH_BYTES = 1000, 1024 * 1024
#: Fewer rows are not sent at once, however slow the network.
FEWEST_ROWS = 10
log = logging.getLogger("potstill.client")


def upload(
    rows: Sequence[R],
    post: Callable[[Sequence[R]], Call[None]],
    accepted: Callable[[Sequence[R]], object],
    refused: Callable[[R, str], object],
) -> Call[None]:
    """Send rows; a batch that is refused is halved until the bad row stands alone.

    Args:
        rows: at least one.
        post: sends some of them.
        accepted: told of rows that the service has acknowledged.
        refused: told of a row that the service does not take, and why.
    """
    try:
        yield from post(rows)
    except Refused as error:
        if error.status not in ABOUT_ROWS:
            raise
        if len(rows) == 1:
            refused(rows[0], str(error))
            return
        middle = len(rows) // 2
        yield from upload(rows[:middle], post, accepted, refused)
        yield from upload(rows[middle:], post, accepted, refused)
    else:
        accepted(rows)


class Synced(msgspec.Struct, frozen=True):
    """What a `sync` did.

    Attributes:
        decisions: that the service now has.
        rewards: that the service now has.
        refused: rows that the service did not take; `EdgeClient.refused` has them.
        policy: the version that decides from now on.
        policy_error: why a downloaded policy was not taken over, if so; the old one decides on.
    """

    decisions: int
    rewards: int
    refused: int
    policy: int
    policy_error: str | None = None


class _Sent:
    """Counts what leaves the queue, and takes it out."""

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
        log.warning("a %s, %r, was refused and is set aside: %s", row.kind, row.id, reason)


class Sync:
    """Uploads the queue and refreshes the policy; one at a time.

    Attributes:
        stopping: set to end an upload after the batch under way; the rest stays in the queue.
    """

    def __init__(
        self, queue: Queue, stored: StoredPolicy, http: Http, retry: Retry, sleep: Callable[[float], object]
    ) -> None:
        self._queue, self._stored, self._http = queue, stored, http
        self._retry, self._sleep = retry, sleep
        self._one = threading.Lock()
        self._batch = BATCH_ROWS
        self.stopping = threading.Event()

    def first_policy(self, url: str) -> None:
        """Download the policy of a device that has none."""
        try:
            self._stored.replace(self._run(calls.policy(self._retry)))
        except (ServiceError, InvalidPolicy) as error:
            raise NoPolicy(
                f"there is no policy to decide with: {self._stored.reason}, and {url} gave none: {error}. "
                "Start once with a network, or put a policy file there"
            ) from error

    def run(self) -> Synced:
        """Send the rows that are in the queue now, and look for a new policy."""
        with self._one:
            sent = self._upload()
            error = self._refresh()
        assert self._stored.current is not None  # from the start on
        return Synced(sent.counts["decision"], sent.counts["reward"], sent.refused, self._stored.current.version, error)

    def _upload(self) -> _Sent:
        sent = _Sent(self._queue)
        last = self._queue.newest()
        while not self.stopping.is_set() and (rows := self._queue.oldest(self._batch, BATCH_BYTES, until=last)):
            try:
                for kind in ("decision", "reward"):  # no reward goes before its decision
                    if some := [row for row in rows if row.kind == kind]:
                        self._run(upload(some, self._post, sent.accepted, sent.refuse))
            except Unreachable:
                self._batch = max(self._batch // 4, FEWEST_ROWS)  # perhaps the network is too slow for so many
                raise
            self._batch = min(self._batch * 2, BATCH_ROWS)
        return sent

    def _post(self, rows: Sequence[Row]) -> Call[None]:
        path, name = ("observe", "observations") if rows[0].kind == "decision" else ("reward", "rewards")
        return calls.post_rows(path, name, [row.body for row in rows], self._retry)

    def _refresh(self) -> str | None:
        """Take over a new policy if there is one; why it was not taken over, if so."""
        assert self._stored.etag is not None  # from the start on
        data = self._run(calls.changed_policy(self._stored.etag, self._retry))
        try:
            if data is not None:
                self._stored.replace(data)
        except InvalidPolicy as error:
            log.warning("a downloaded policy is not used: %s", error)
            return str(error)
        return None

    def _run(self, call: Call[T]) -> T:
        return run(call, self._http.send, self._sleep)
