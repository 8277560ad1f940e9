"""The state of a client and its calls, shared by `Client` and `AsyncClient`."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from potstill.client import calls
from potstill.client.errors import Unreachable
from potstill.client.retry import Retry
from potstill.client.reward_buffer import RewardBuffer
from potstill.client.sansio import Call
from potstill.client.sync import upload
from potstill.client.wire import Answer, DecideRequest, Observation, RewardReport, encode, reward_report
from potstill.errors import shown
from potstill.policy import Policy

#: Number of latest fallback decisions whose rewards are recognised.
FALLBACK_IDS = 100_000


class Session:
    """The calls of a client, as sans-IO generators."""

    def __init__(self, retry: Retry, fallback: Any, reward_batch: int, max_pending: int) -> None:
        self.retry = retry
        self.pending = RewardBuffer(max_pending)
        self.reward_batch = reward_batch
        self._fallback = checked_fallback(fallback)
        self._fallen: dict[str, None] = {}

    def decide(self, asked: DecideRequest) -> Call[Answer]:
        """One decision, or the fallback action if the service cannot be reached."""
        try:
            return (yield from calls.decide(asked, self.retry))
        except Unreachable as error:
            return self._fall_back(asked, error)

    def decide_batch(self, requests: Iterable[Mapping[str, Any]]) -> Call[list[Answer]]:
        """Decisions in the order of the requests, or the fallback action for each of them."""
        asked = [request_of(**request) for request in requests]
        try:
            return (yield from calls.decide_batch(asked, self.retry))
        except Unreachable as error:
            return [self._fall_back(one, error) for one in asked]

    def reward(
        self,
        id: str,  # noqa: A002
        reward: float,
        key: str | None,
        time: datetime | None,
        metrics: Mapping[str, float] | None = None,
    ) -> int:
        """Buffer a reward for the next `drain`; returns how many are pending, 0 if it is not to be sent."""
        report = reward_report(id, reward, key, time, metrics)
        return 0 if id in self._fallen else self.pending.add(report)

    def drain(self) -> Call[None]:
        """Send pending rewards."""
        while reports := self.pending.oldest(self.reward_batch):
            yield from upload(reports, self._post, self.pending.sent, self.pending.refuse)

    def observe(self, observations: Iterable[Observation | Mapping[str, Any]]) -> Call[int]:
        """Send decisions that a device took; returns how many were accepted."""
        bodies = [encode(observation) for observation in observations]
        if bodies:
            yield from calls.post_rows("observe", "observations", bodies, self.retry)
        return len(bodies)

    def policy(self) -> Call[Policy]:
        """The serving policy."""
        return Policy.from_bytes((yield from calls.policy(self.retry)))

    def status(self) -> Call[dict[str, Any]]:
        """Status of the problem."""
        return calls.status(self.retry)

    def _post(self, reports: Sequence[RewardReport]) -> Call[None]:
        return calls.post_rows("reward", "rewards", [encode(report) for report in reports], self.retry)

    def _fall_back(self, asked: DecideRequest, error: Unreachable) -> Answer:
        action = self._fallback if asked.action is None else asked.action
        if action is None or not _permits(asked.eligible, action):
            raise error
        # The request may have arrived, and another action may be logged under this id: do not send it this reward.
        self._fallen[asked.id] = None
        if len(self._fallen) > FALLBACK_IDS:
            del self._fallen[next(iter(self._fallen))]
        return Answer(asked.id, action, 1.0, None, "fallback")


def _permits(eligible: Any, action: Any) -> bool:
    """Whether a restriction surely permits an action: a client knows only lists of names, and intervals of numbers."""
    if eligible is None:
        return True
    if _is_number(action):
        is_interval = isinstance(eligible, (list, tuple)) and len(eligible) == 2 and all(map(_is_number, eligible))
        return is_interval and bool(eligible[0] <= action <= eligible[1])
    return isinstance(eligible, (list, tuple, set, frozenset)) and action in eligible


def checked_fallback(fallback: Any) -> Any:
    """The fallback action; `ValueError` for a number that is not finite."""
    if _is_number(fallback) and not math.isfinite(fallback):
        raise ValueError(f"fallback must be an action, such as a finite number, got {shown(fallback)}")
    return fallback


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def request_of(
    context: Mapping[str, Any],
    id: str | None = None,  # noqa: A002 - the name in the API
    eligible: Any = None,
    unit: str | None = None,
    action: Any = None,
    propensity: float | None = None,
) -> DecideRequest:
    """A request with an id, so that a retry asks for the same decision."""
    return DecideRequest(
        context=context,
        id=id or uuid.uuid4().hex,
        eligible=eligible,
        unit=unit,
        action=action,
        propensity=propensity,
    )
