"""The client of a program that asks the service for each decision."""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar

from potstill.client.errors import ServiceError
from potstill.client.http import Http
from potstill.client.retry import Retry
from potstill.client.sansio import Call, run
from potstill.client.session import Conversation, request_of
from potstill.client.wire import Answer, Observation
from potstill.policy import Policy

T = TypeVar("T")
log = logging.getLogger("potstill.client")


class Client:
    """Decides over HTTP. Safe to share between threads.

    A request is sent again after a broken connection and when the service is overloaded or away (408, 429, 502, 503,
    504), always under the same id, so that it is the same decision. Rewards are gathered and sent in the background;
    `flush` waits for them, and so do `close` and the end of the program. They are in memory until then: where they must
    survive a crash, use an `EdgeClient`.

    >>> with Client("http://127.0.0.1:8080/v1/video-upload", fallback="480p") as client:  # doctest: +SKIP
    ...     answer = client.decide({"bandwidth_kbps": 900, "connection": "4g", "hd_screen": True})
    ...     client.reward(answer.id, 1.0)

    Args:
        url: the problem's address.
        token: of the service, if it wants one.
        timeout: seconds for a call, with all its retries and pauses.
        retries: attempts after the first.
        fallback: the action that `decide` returns, with mode ``"fallback"``, if the service cannot be reached in
            time. Rewards of such decisions are not sent: nothing was logged that they could belong to. Without it,
            `decide` raises `Unreachable`.
        reward_every: seconds that a reward waits at most for others.
        reward_batch: rewards that are sent at once without waiting.
        max_pending: rewards that may wait for a service that is away; then `reward` raises `QueueFull`.
        retry: in place of `timeout` and `retries`.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        timeout: float = 2.0,
        retries: int = 3,
        *,
        fallback: str | None = None,
        reward_every: float = 0.5,
        reward_batch: int = 500,
        max_pending: int = 100_000,
        retry: Retry | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        retry = retry or Retry(timeout=timeout, retries=retries)
        self._talk = Conversation(retry, fallback, reward_batch, max_pending)
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
        id: str | None = None,  # noqa: A002 - the word that callers know
        eligible: Sequence[str] | None = None,
        unit: str | None = None,
        action: str | None = None,
    ) -> Answer:
        """Ask for a decision.

        Args:
            context: feature names and values.
            id: names the decision; asking again under the same id gives the same decision. A new one if left out.
            eligible: the actions that are allowed now.
            unit: whom the decision is about, such as a user.
            action: what the caller does in any case; wanted in mode ``apprentice``, and only there.

        Raises:
            Refused: the service does not take the request; the message says why.
            Unreachable: there was no answer in time, and there is no fallback action that is eligible.
        """
        return self._run(self._talk.decide(request_of(context, id, eligible, unit, action)))

    def decide_batch(self, requests: Iterable[Mapping[str, Any]]) -> list[Answer]:
        """Ask for up to 1,000 decisions at once; each request has the arguments of `decide`."""
        return self._run(self._talk.decide_batch(requests))

    def reward(
        self,
        id: str,  # noqa: A002
        reward: float,
        *,
        key: str | None = None,
        time: datetime | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Report a reward; it is sent with others, soon.

        Args:
            id: of the decision.
            reward: a finite number.
            key: names the reward among several of one decision; a second one with the same key counts once.
            time: when it came; now if left out.
            metrics: other outcomes to watch in experiments, by name: ``{"watched": 3.2}``. Nothing is learnt from them.
        """
        if self._closed:
            raise ValueError("the client is closed; make another")
        waiting = self._talk.reward(id, reward, key, time, metrics)
        with self._due:
            self._start()
            if waiting == 1 or waiting >= self._talk.reward_batch:
                self._due.notify()

    def flush(self) -> None:
        """Send the rewards that wait; they are kept if that fails."""
        with self._flushing:
            self._run(self._talk.drain())

    def observe(self, observations: Iterable[Observation | Mapping[str, Any]]) -> int:
        """Send decisions that were taken elsewhere, and say how many were accepted: all or none."""
        return self._run(self._talk.observe(observations))

    def policy(self) -> Policy:
        """Download the policy that is served now."""
        return self._run(self._talk.policy())

    def status(self) -> dict[str, Any]:
        """What the service says of the problem."""
        return self._run(self._talk.status())

    def close(self) -> None:
        """Send what waits, and close the connections.

        Raises:
            ServiceError: rewards could not be sent; they are lost with the client.
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
        if self._thread is None or not self._thread.is_alive():  # as in the child of a fork
            self._thread = threading.Thread(target=self._flush_when_due, name="potstill-rewards", daemon=True)
            self._thread.start()

    def _flush_when_due(self) -> None:
        while self._wait_until_due():
            try:
                self.flush()
            except ServiceError as error:
                log.warning("%d rewards wait, and are sent later: %s", len(self._talk.pending), error)
                with self._due:
                    self._due.wait_for(lambda: self._closed, self._every)

    def _wait_until_due(self) -> bool:
        """Wait for a first reward, then for a full batch or the time that it may wait; False when closed."""
        pending, batch = self._talk.pending, self._talk.reward_batch
        with self._due:
            self._due.wait_for(lambda: self._closed or len(pending) > 0)
            self._due.wait_for(lambda: self._closed or len(pending) >= batch, self._every)
            return not self._closed


def _closing_at_exit(client: Client) -> Callable[[], None]:
    """Close a client at the end of the program, if it is still there and open."""
    reference = weakref.ref(client)

    def close() -> None:
        if (client := reference()) is not None:
            try:
                client.close()
            except ServiceError as error:
                log.warning("the program ended before all rewards were sent: %s", error)

    atexit.register(close)
    return close
