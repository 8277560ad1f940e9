"""The client that asks the service for each decision."""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar

from potstill.client.errors import ServiceError
from potstill.client.http import Http
from potstill.client.retry import Retry
from potstill.client.sansio import Call, run
from potstill.client.session import Session, request_of
from potstill.client.wire import Answer, Observation
from potstill.policy import Policy

T = TypeVar("T")
log = logging.getLogger("potstill.client")


class Client:
    """Decides over HTTP. Thread-safe.

    A request is retried after a connection error and when the service is overloaded or unavailable (408, 429, 502, 503,
    504), always under the same id, so that it is the same decision. Rewards are buffered and sent in the background;
    `flush`, `close` and the end of the program wait for them. They are only in memory until then: where they must
    survive a crash, use an `EdgeClient`.

    >>> with Client("http://127.0.0.1:8080/v1/video-upload", fallback="480p") as client:  # doctest: +SKIP
    ...     answer = client.decide({"bandwidth_kbps": 900, "connection": "4g", "hd_screen": True})
    ...     client.reward(answer.id, 1.0)

    Args:
        url: Address of the problem.
        token: Token of the service, if it needs one.
        timeout: Seconds for a call, with all retries and pauses.
        retries: Attempts after the first.
        fallback: Action that `decide` returns, with mode ``"fallback"``, if the service cannot be reached in time and
            the action is eligible. Rewards of such decisions are not sent, since the decision is not logged. Without a
            fallback, `decide` raises `Unreachable`.
        reward_every: Seconds that a reward waits at most for others.
        reward_batch: Number of pending rewards that are sent without waiting.
        max_pending: The most pending rewards; beyond that, `reward` raises `QueueFull`.
        retry: Retry policy, in place of `timeout` and `retries`.
        sleep: Waits for a number of seconds.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        timeout: float = 2.0,
        retries: int = 3,
        *,
        fallback: Any = None,
        reward_every: float = 0.5,
        reward_batch: int = 500,
        max_pending: int = 100_000,
        retry: Retry | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        retry = retry or Retry(timeout=timeout, retries=retries)
        self._session = Session(retry, fallback, reward_batch, max_pending)
        self._http = Http(url, token)
        self._sleep = sleep
        self._flushing = threading.Lock()
        self._every = reward_every
        self._due = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._at_exit = _closing_at_exit(self)

    def decide(
        self,
        context: Mapping[str, Any],
        *,
        id: str | None = None,  # noqa: A002 - the name in the API
        eligible: Any = None,
        unit: str | None = None,
        action: Any = None,
        propensity: float | None = None,
    ) -> Answer:
        """Ask for a decision.

        Args:
            context: Feature names and values.
            id: Id of the decision; the same id gives the same decision. Generated if left out.
            eligible: The actions that are allowed now; an interval ``[from, to]`` if the action is a number.
            unit: Whom the decision is about, such as a user.
            action: The caller's own choice, required in mode ``apprentice`` and refused in others.
            propensity: Probability, or density, with which the caller chose `action`, if it is known.

        Raises:
            Refused: The service refused the request; the message says why.
            Unreachable: There was no reply in time, and no eligible fallback action.
        """
        return self._run(self._session.decide(request_of(context, id, eligible, unit, action, propensity)))

    def decide_batch(self, requests: Iterable[Mapping[str, Any]]) -> list[Answer]:
        """Ask for up to 1,000 decisions at once; each request has the arguments of `decide`."""
        return self._run(self._session.decide_batch(requests))

    def reward(
        self,
        id: str,  # noqa: A002
        reward: float,
        *,
        key: str | None = None,
        time: datetime | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Report a reward; it is sent in a batch, soon.

        Args:
            id: Id of the decision.
            reward: A finite number.
            key: Name of the reward among those of one decision; a second one with the same key counts once.
            time: When it came; now if left out.
            metrics: Other outcomes that experiments report, by name: ``{"watched": 3.2}``. Policies do not learn from
                them.
        """
        if self._closed:
            raise ValueError("the client is closed; create another")
        waiting = self._session.reward(id, reward, key, time, metrics)
        with self._due:
            self._start()
            if waiting == 1 or waiting >= self._session.reward_batch:
                self._due.notify()

    def flush(self) -> None:
        """Send pending rewards; they stay pending if that fails."""
        with self._flushing:
            self._run(self._session.drain())

    def observe(self, observations: Iterable[Observation | Mapping[str, Any]]) -> int:
        """Send decisions that a device took; returns how many were accepted: all or none."""
        return self._run(self._session.observe(observations))

    def policy(self) -> Policy:
        """Download the serving policy."""
        return self._run(self._session.policy())

    def status(self) -> dict[str, Any]:
        """Status of the problem."""
        return self._run(self._session.status())

    def close(self) -> None:
        """Send pending rewards, and close the connections.

        Raises:
            ServiceError: Rewards could not be sent; they are lost.
        """
        if self._closed:
            return
        with self._due:
            self._closed = True
            self._due.notify()
        if self._thread is not None:
            self._thread.join()
        atexit.unregister(self._at_exit)
        try:
            self.flush()
        finally:
            self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        with contextlib.suppress(ServiceError) if kind else contextlib.nullcontext():
            self.close()

    def _run(self, call: Call[T]) -> T:
        return run(call, self._http.send, self._sleep)

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():  # the thread does not survive a fork
            self._thread = threading.Thread(target=self._flush_when_due, name="potstill-rewards", daemon=True)
            self._thread.start()

    def _flush_when_due(self) -> None:
        while self._wait_until_due():
            try:
                self.flush()
            except ServiceError as error:
                log.warning("%d rewards are pending and will be retried: %s", len(self._session.pending), error)
                with self._due:
                    self._due.wait_for(lambda: self._closed, self._every)

    def _wait_until_due(self) -> bool:
        """Wait for a first reward, then for a full batch or `reward_every` seconds; False when closed."""
        pending, batch = self._session.pending, self._session.reward_batch
        with self._due:
            self._due.wait_for(lambda: self._closed or len(pending) > 0)
            self._due.wait_for(lambda: self._closed or len(pending) >= batch, self._every)
            return not self._closed


def _closing_at_exit(client: Client) -> Callable[[], None]:
    """Close a client at the end of the program, if it still exists."""
    reference = weakref.ref(client)

    def close() -> None:
        if (client := reference()) is not None:
            try:
                client.close()
            except ServiceError as error:
                log.warning("some rewards were not sent before the program ended: %s", error)

    atexit.register(close)
    return close
