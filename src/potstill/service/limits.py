"""Limits of a worker: bytes and seconds of a body, requests in flight, and bytes of all their bodies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from potstill.errors import PotstillError
from potstill.problem import Problem
from potstill.service.auth import Guard
from potstill.service.http import CLOSE, Receive, Refusal, channel, overloaded, too_large
from potstill.service.shared_ids import SharedIds
from potstill.spaces import FiniteSpace

MIB = 1024 * 1024
#: Digits of a Content-Length beyond which it is not parsed.
DIGITS = 19
#: Values of a request, reward or observation besides its context and eligible actions, on the average of a batch.
VALUES = 120
#: Number of times that slow bodies are looked for within `read_seconds`.
STEPS = 10


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a worker serves.

    Attributes:
        guards: Guards of problems by name; a problem without one is open to all.
        metrics: Makes the metrics, given a function that looks up gauges: `metrics.Metrics`. None for no metrics.
        max_body: The most bytes of a body that is not a batch.
        max_batch_body: The most bytes of a batch.
        max_batch: The most requests, rewards or observations in a batch.
        max_in_flight: The most requests in flight; further ones are answered with 503 and Retry-After.
        max_bytes_in_flight: The most bytes of all bodies in flight.
        read_seconds: Seconds in which a body must arrive.
        log_timeout: Seconds to wait for the disk.
        reload_seconds: Seconds between two looks for a new version; those of ``potstill.toml`` if left out.
        idempotency_size: Number of decisions to recognise by their ids.
        shared_ids: Gives the ids that the workers have decided, for the name of a problem; None for a single worker.
        cors: Origins of pages that may call.
        personalizer: Whether to answer the requests of Azure Personalizer.
    """

    guards: Mapping[str, Guard] = field(default_factory=dict)
    metrics: Callable[[Callable[[], Iterable[Any]]], Any] | None = None
    max_body: int = MIB
    max_batch_body: int = 16 * MIB
    max_batch: int = 1000
    max_in_flight: int = 1000
    max_bytes_in_flight: int = 256 * MIB
    read_seconds: float = 10.0
    log_timeout: float = 1.5
    reload_seconds: float | None = None
    idempotency_size: int = 100_000
    shared_ids: Callable[[str], SharedIds] | None = None
    cors: Sequence[str] = ()
    personalizer: bool = False


def most_values(problem: Problem, max_batch: int) -> int:
    """The most values in a batch: as many as its items can have, and some for rewards and metrics."""
    eligible = len(problem.actions) if isinstance(problem.actions, FiniteSpace) else 0
    features = sum(feature.length for feature in problem.context)
    return max_batch * (features + eligible + VALUES)


def refuse_crowded(body: bytes, most: int) -> None:
    """Refuse a body with too many values before it is decoded: values take far more memory than their text.

    All values of a list or object but the first follow a comma, so that commas bound their number from above.
    """
    commas = body.count(b",")
    if commas > most:
        raise too_large(f"a request may have at most {most} values here, and this one has {commas}; send less at once")


class Disconnected(PotstillError):
    """The caller disconnected before the body was complete."""


class Load:
    """The requests in flight of a worker, and their bodies.

    Args:
        requests: The most requests in flight.
        bytes: The most bytes of their bodies.
        seconds: Seconds in which a body must arrive.
    """

    def __init__(self, *, requests: int, bytes: int, seconds: float) -> None:  # noqa: A002
        self._most_requests, self._most_bytes, self._seconds = requests, bytes, seconds
        self.requests = 0
        self.bytes = 0
        self._clock = 0  # in steps of `watch`
        self._reading: dict[asyncio.Task[Any], int] = {}  # when each began
        self._late: set[asyncio.Task[Any]] = set()

    def enter(self) -> None:
        """Count a request in; `leave` must follow unless it is refused."""
        if self.requests >= self._most_requests:
            raise overloaded(f"{self.requests} requests are in flight, which is the limit; retry in a second")
        self.requests += 1

    def leave(self, body: bytes) -> None:
        """Count a request out, with the body that was read."""
        self.requests -= 1
        self.bytes -= len(body)

    def complete(self, receive: Receive, limit: int, stated: bytes | None) -> bytes | None:
        """The body of a request if it has arrived, as most have; arguments and limits are those of `read`."""
        if stated is not None and (not stated.isdigit() or len(stated) > DIGITS or int(stated) > limit):
            raise _beyond(limit)
        direct = channel(receive)
        body = None if direct is None else direct.complete_body()
        if body is not None:
            self._refuse(len(body), self.bytes + len(body), limit)
            self.bytes += len(body)
        return body

    async def read(self, receive: Receive, limit: int, stated: bytes | None) -> bytes:
        """The whole body of a request; it counts as in flight until `leave`.

        Args:
            receive: The ASGI channel.
            limit: The most bytes.
            stated: The header Content-Length, which need not be true.
        """
        if (body := self.complete(receive, limit, stated)) is not None:
            return body
        task = asyncio.current_task()
        assert task is not None
        self._reading[task] = self._clock
        try:
            return await self._read(receive, limit)
        except asyncio.CancelledError:
            if task not in self._late:
                raise
            self._late.remove(task)
            task.uncancel()
            raise _slow(self._seconds) from None
        finally:
            del self._reading[task]

    async def watch(self) -> None:
        """Cancel requests whose bodies are late; runs until cancelled.

        One periodic sweep over all of them: a timer for each would cost more than reading most bodies.
        """
        pause = self._seconds / STEPS
        while True:
            await asyncio.sleep(pause)
            self._clock += 1
            for task, begun in self._reading.items():
                if self._clock - begun > STEPS and task not in self._late:
                    self._late.add(task)
                    task.cancel()

    async def _read(self, receive: Receive, limit: int) -> bytes:
        parts: list[bytes] = []
        held, more = 0, True
        try:
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise Disconnected
                part, more = message.get("body", b""), message.get("more_body", False)
                parts.append(part)
                held += len(part)
                self.bytes += len(part)
                self._refuse(held, self.bytes, limit)
        except BaseException:
            self.bytes -= held
            raise
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _refuse(self, held: int, in_flight: int, limit: int) -> None:
        if held > limit:
            raise _beyond(limit)
        if in_flight > self._most_bytes:
            raise overloaded("too many bytes are in flight; retry in a second")


def _slow(seconds: float) -> Refusal:
    return Refusal(408, "slow", f"the body was not complete after {seconds:g} seconds; send it faster", CLOSE)


def _beyond(limit: int) -> Refusal:
    return too_large(f"a body may have at most {limit} bytes here; send less at once")
