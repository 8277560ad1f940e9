"""How much a worker takes: bytes of a body, seconds to send it, requests at a time, and bytes of all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from potstill.errors import PotstillError
from potstill.service.http import CLOSE, Receive, Refusal, overloaded, too_large
from potstill.service.tokens import Guard

MIB = 1024 * 1024


#: Of a stated length that is worth reading.
DIGITS = 19
#: Looks at those who send a body, in the time that they have for it.
STEPS = 10


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a worker serves.

    Attributes:
        guards: who may call a problem, by its name; those that are not named are open to all.
        metrics: makes what counts and tells, given a function that looks up how problems stand: `metrics.Metrics`.
        max_body: bytes of a request to decide, and of all that are not batches.
        max_batch_body: bytes of a batch.
        max_batch: requests, rewards or observations in a batch.
        max_in_flight: requests at a time; beyond that, callers are told to come again.
        max_bytes_in_flight: of the bodies of all of them.
        read_seconds: how long a body may take to arrive.
        patience: how long to wait for the disk, in seconds.
        reload_seconds: between two looks for a new version; what ``potstill.toml`` says if left out.
        remembered: how many decisions to know again by their ids.
        cors: origins of pages that may call.
    """

    guards: Mapping[str, Guard] = field(default_factory=dict)
    metrics: Callable[[Callable[[], Iterable[Any]]], Any] | None = None
    max_body: int = MIB
    max_batch_body: int = 16 * MIB
    max_batch: int = 1000
    max_in_flight: int = 1000
    max_bytes_in_flight: int = 256 * MIB
    read_seconds: float = 10.0
    patience: float = 1.5
    reload_seconds: float | None = None
    remembered: int = 100_000
    cors: Sequence[str] = ()


class Disconnected(PotstillError):
    """The caller is gone before the body was there; nobody waits for a reply."""


class Load:
    """What a worker has in hand.

    Args:
        requests: how many it takes at a time.
        bytes: how much their bodies may come to.
        seconds: how long a body may take to arrive.
    """

    def __init__(self, *, requests: int, bytes: int, seconds: float) -> None:  # noqa: A002
        self._most_requests, self._most_bytes, self._seconds = requests, bytes, seconds
        self.requests = 0
        self.bytes = 0
        self._clock = 0  # in steps of `watch`
        self._reading: dict[asyncio.Task[Any], int] = {}  # when each began
        self._late: set[asyncio.Task[Any]] = set()

    def enter(self) -> None:
        """Begin a request; `leave` must follow unless it is refused."""
        if self.requests >= self._most_requests:
            raise overloaded(f"{self.requests} requests are being answered, which is the most; try again in a second")
        self.requests += 1

    def leave(self, body: bytes) -> None:
        """End a request with the body that was read of it."""
        self.requests -= 1
        self.bytes -= len(body)

    async def read(self, receive: Receive, limit: int, stated: bytes | None) -> bytes:
        """The whole body of a request, which is in hand until it is given to `leave`.

        Args:
            receive: the ASGI channel.
            limit: the most bytes.
            stated: the header Content-Length; what is stated need not be what comes.
        """
        if stated is not None and (not stated.isdigit() or len(stated) > DIGITS or int(stated) > limit):
            raise _beyond(limit)
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
        """Cut off for ever those whose bodies take too long.

        One look at all of them now and then: a timer for each would cost more than most bodies do.
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
                self._refuse(held, limit)
        except BaseException:
            self.bytes -= held
            raise
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _refuse(self, held: int, limit: int) -> None:
        if held > limit:
            raise _beyond(limit)
        if self.bytes > self._most_bytes:
            raise overloaded("too many large bodies are in hand; try again in a second")


def _slow(seconds: float) -> Refusal:
    return Refusal(408, "slow", f"the body was not there after {seconds:g} seconds; send it faster", CLOSE)


def _beyond(limit: int) -> Refusal:
    return too_large(f"a body here has at most {limit} bytes; send less at once")
