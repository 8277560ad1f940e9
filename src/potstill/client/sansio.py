"""Sans-IO calls: the synchronous and the asynchronous client share all logic.

A call is a generator. It yields the next step, a request or a pause, and is sent the outcome. `run` and `run_async`
carry out the steps: one blocks, the other awaits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Request(msgspec.Struct, frozen=True):
    """A request to an endpoint of a problem; `path` follows ``/v1/{problem}/``."""

    method: str
    path: str
    body: bytes | None = None
    headers: Mapping[str, str] = {}


class Reply(msgspec.Struct, frozen=True):
    """A reply; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NoReply(msgspec.Struct, frozen=True):
    """A request without a complete reply, and why."""

    reason: str


class Send(msgspec.Struct, frozen=True):
    """Step: send a request, and wait up to `seconds` for the complete reply."""

    request: Request
    seconds: float


class Pause(msgspec.Struct, frozen=True):
    """Step: wait."""

    seconds: float


Outcome = Reply | NoReply
Call = Generator[Send | Pause, Outcome | None, T]


def run(call: Call[T], send: Callable[[Send], Outcome], sleep: Callable[[float], object]) -> T:
    """Carry out a call."""
    outcome: Outcome | None = None
    while True:
        try:
            step = call.send(outcome)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        outcome = None
        if isinstance(step, Pause):
            sleep(step.seconds)
        else:
            outcome = send(step)


async def run_async(
    call: Call[T], send: Callable[[Send], Awaitable[Outcome]], sleep: Callable[[float], Awaitable[object]]
) -> T:
    """Carry out a call without blocking the event loop."""
    outcome: Outcome | None = None
    while True:
        try:
            step = call.send(outcome)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        outcome = None
        if isinstance(step, Pause):
            await sleep(step.seconds)
        else:
            outcome = await send(step)
