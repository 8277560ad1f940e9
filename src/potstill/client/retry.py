"""Retries of requests, with exponential backoff and jitter."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from itertools import count

import msgspec

from potstill.client.errors import Unreachable
from potstill.client.sansio import Call, NoReply, Outcome, Pause, Reply, Request, Send

#: Statuses of a service that is overloaded or unavailable, of a body that came too slowly, and of proxies.
RETRIABLE = frozenset({408, 429, 502, 503, 504})


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """Retry policy.

    Attributes:
        retries: Attempts after the first.
        timeout: Seconds for all attempts and pauses together.
        pause: Seconds before the first retry; doubled for each further one, up to `longest`.
        longest: The longest pause in seconds.
        jitter: Gives a number in [0, 1). It shortens a pause by up to half, so that clients that failed together do
            not retry together.
        clock: A monotonic clock in seconds.
    """

    retries: int = 3
    timeout: float = 2.0
    pause: float = 0.05
    longest: float = 10.0
    jitter: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic

    def backoff(self, attempt: int) -> float:
        """Seconds to wait after a failed attempt, counted from 0."""
        full = min(self.longest, self.pause * 2.0 ** min(attempt, 60))
        return full * (1 - self.jitter() / 2)


def exchange(request: Request, retry: Retry) -> Call[Reply]:
    """Send a request until there is a reply that is not a transient failure.

    Raises:
        Unreachable: No attempt or time is left, or Retry-After exceeds the time that is left.
    """
    deadline = retry.clock() + retry.timeout
    for attempt in count():
        outcome = yield Send(request, max(deadline - retry.clock(), 0.001))
        if isinstance(outcome, Reply) and outcome.status not in RETRIABLE:
            return outcome
        pause = max(retry.backoff(attempt), _retry_after(outcome))
        if attempt >= retry.retries or retry.clock() + pause >= deadline:
            raise Unreachable(f"{request.method} {request.path}: {_reason(outcome)}; {attempt + 1} attempts were made")
        yield Pause(pause)
    raise AssertionError("not reached")


def _retry_after(outcome: Outcome | None) -> float:
    """Seconds of a Retry-After header; 0 for a date, which the service does not send."""
    if not isinstance(outcome, Reply):
        return 0.0
    try:
        seconds = float(outcome.headers.get("retry-after", 0))
    except ValueError:
        return 0.0
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0


def _reason(outcome: Outcome | None) -> str:
    if isinstance(outcome, Reply):
        return f"the service answered {outcome.status}"
    return outcome.reason if isinstance(outcome, NoReply) else "nothing was sent"
