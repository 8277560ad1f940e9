"""When a request is sent again, and when that is given up."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from itertools import count

import msgspec

from potstill.client.errors import Unreachable
from potstill.client.sansio import Broken, Call, Outcome, Pause, Reply, Request, Send

#: Replies of a service that is overloaded or away, or for which a body came too slowly, or of a proxy in front of it.
PASSING = frozenset({408, 429, 502, 503, 504})


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often, how soon and how long.

    Attributes:
        retries: attempts after the first.
        timeout: seconds for all attempts and pauses together.
        pause: seconds before the first retry; each further pause is twice as long, up to `longest`.
        longest: seconds.
        jitter: gives a number in [0, 1). A pause is shortened by up to half, so that clients that failed together do
            not come back together.
        clock: seconds that never go backwards.
    """

    retries: int = 3
    timeout: float = 2.0
    pause: float = 0.05
    longest: float = 10.0
    jitter: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic

    def backoff(self, attempt: int) -> float:
        """Seconds to wait after a failed attempt, the first of which is number 0."""
        full = min(self.longest, self.pause * 2.0 ** min(attempt, 60))
        return full * (1 - self.jitter() / 2)


def exchange(request: Request, retry: Retry) -> Call[Reply]:
    """Send a request until there is an answer that is not a passing failure.

    Raises:
        Unreachable: the attempts or the time are used up, or the service asked for a longer pause than is left.
    """
    deadline = retry.clock() + retry.timeout
    for attempt in count():
        outcome = yield Send(request, max(deadline - retry.clock(), 0.001))
        if isinstance(outcome, Reply) and outcome.status not in PASSING:
            return outcome
        pause = max(retry.backoff(attempt), _asked_for(outcome))
        if attempt >= retry.retries or retry.clock() + pause >= deadline:
            raise Unreachable(f"{request.method} {request.path}: {_reason(outcome)}; {attempt + 1} attempts were made")
        yield Pause(pause)
    raise AssertionError("not reached")


def _asked_for(outcome: Outcome | None) -> float:
    """The seconds of a Retry-After header; the form with a date is not used by the service, and counts as none."""
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
    return outcome.reason if isinstance(outcome, Broken) else "nothing was sent"
