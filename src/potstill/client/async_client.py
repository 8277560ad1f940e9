"""The client for programs with an event loop; it shares all logic with `Client` except for waiting."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar

from potstill.client.errors import ServiceError
from potstill.client.http import AsyncHttp
from potstill.client.retry import Retry
from potstill.client.sansio import Call, run_async
from potstill.client.session import Session, request_of
from potstill.client.wire import Answer, Observation
from potstill.policy import Policy

T = TypeVar("T")
log = logging.getLogger("potstill.client")


class AsyncClient:
    """`Client` for asyncio. It belongs to one event loop.

    Arguments are those of `Client`. The end of the program does not send pending rewards: use ``async with``, or await
    `close`.
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
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        retry = retry or Retry(timeout=timeout, retries=retries)
        self._session = Session(retry, fallback, reward_batch, max_pending)
        self._http = AsyncHttp(url, token)
        self._sleep = sleep
        self._every = reward_every
        self._flushing = asyncio.Lock()
        self._full = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def decide(
        self,
        context: Mapping[str, Any],
        *,
        id: str | None = None,  # noqa: A002 - the name in the API
        eligible: Any = None,
        unit: str | None = None,
        action: Any = None,
        propensity: float | None = None,
    ) -> Answer:
        """Ask for a decision, as `Client.decide` does."""
        return await self._run(self._session.decide(request_of(context, id, eligible, unit, action, propensity)))

    async def decide_batch(self, requests: Iterable[Mapping[str, Any]]) -> list[Answer]:
        """Ask for up to 1,000 decisions at once; each request has the arguments of `decide`."""
        return await self._run(self._session.decide_batch(requests))

    async def reward(
        self,
        id: str,  # noqa: A002
        reward: float,
        *,
        key: str | None = None,
        time: datetime | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> None:
        """Report a reward, as `Client.reward` does; it is sent in a batch, soon."""
        if self._closed:
            raise ValueError("the client is closed; create another")
        waiting = self._session.reward(id, reward, key, time, metrics)
        if waiting >= self._session.reward_batch:
            self._full.set()
        if waiting and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._flush_when_due())

    async def flush(self) -> None:
        """Send pending rewards; they stay pending if that fails."""
        async with self._flushing:
            await self._run(self._session.drain())

    async def observe(self, observations: Iterable[Observation | Mapping[str, Any]]) -> int:
        """Send decisions that a device took; returns how many were accepted: all or none."""
        return await self._run(self._session.observe(observations))

    async def policy(self) -> Policy:
        """Download the serving policy."""
        return await self._run(self._session.policy())

    async def status(self) -> dict[str, Any]:
        """Status of the problem."""
        return await self._run(self._session.status())

    async def close(self) -> None:
        """Send pending rewards, and close the connections."""
        if self._closed:
            return
        self._closed = True
        self._full.set()
        try:
            if self._task is not None:
                await self._task
            await self.flush()
        finally:
            await self._http.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        with contextlib.suppress(ServiceError) if kind else contextlib.nullcontext():
            await self.close()

    async def _run(self, call: Call[T]) -> T:
        return await run_async(call, self._http.send, self._sleep)

    async def _flush_when_due(self) -> None:
        """Send pending rewards until none are left; the next reward starts a new task."""
        while len(self._session.pending) and not self._closed:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._full.wait(), self._every)
            self._full.clear()
            try:
                await self.flush()
            except ServiceError as error:
                log.warning("%d rewards are pending and will be retried: %s", len(self._session.pending), error)
