"""What is logged: decisions, rewards, and complete observations from devices that decided on their own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from potstill.policy import Decision

#: How an action came about that the policy did not draw: the caller's own choice, logged with the policy's probability
#: of it; or a fixed action, with propensity 1, since the policy was not to decide yet or could not, or as an
#: experiment's control.
Mode = Literal["apprentice", "log-only", "fallback", "control"]


class LoggedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision as it was taken.

    Attributes:
        id: names the decision; its rewards carry the same id.
        context: feature names and values, as they were sent.
        action: the action that was taken.
        propensity: the exact probability with which it was taken.
        policy: version of the policy that decided.
        eligible: the actions that were allowed, if not all of them were.
        floor: the smallest propensity that was asked for, if it was not the policy's own.
        unit: who or what it was decided for, such as a user; for experiments.
        mode: None for a decision of the policy; otherwise how the action came about, see `Mode`.
        arm: of the experiment that it was decided in, ``NAME:control`` or ``NAME:treatment``; None outside of any.
        time: microseconds since 1970, UTC; left out, the time at which it is logged.
    """

    id: str
    context: Mapping[str, Any]
    action: str
    propensity: float
    policy: int
    eligible: tuple[str, ...] | None = None
    floor: float | None = None
    unit: str | None = None
    mode: Mode | None = None
    arm: str | None = None
    time: int | None = None

    @classmethod
    def of(
        cls, decision: Decision, context: Mapping[str, Any], time: int | None = None, unit: str | None = None
    ) -> LoggedDecision:
        """What `Policy.decide` returned for a context."""
        return cls(
            id=decision.id,
            context=context,
            action=decision.action,
            propensity=decision.propensity,
            policy=decision.policy,
            eligible=decision.eligible,
            floor=decision.floor,
            unit=unit,
            time=time,
        )


class LoggedReward(msgspec.Struct, frozen=True, kw_only=True):
    """A reward, some time after its decision.

    Attributes:
        id: of the decision.
        reward: a finite number.
        key: names the reward among those of one decision; a second one with the same key is a retry and counts once.
            Without keys, rewards of equal time and value are one.
        metrics: other outcomes to watch in experiments, each a finite number by name; nothing is learnt from them.
        time: microseconds since 1970, UTC; left out, the time at which it is logged.
    """

    id: str
    reward: float
    key: str | None = None
    metrics: Mapping[str, float] | None = None
    time: int | None = None


class LoggedObservation(msgspec.Struct, frozen=True, kw_only=True):
    """A decision together with its reward, from a device that kept them until it could send them.

    Attributes:
        decision: as it was taken; it must say its time.
        reward: a finite number, or None if none came.
        reward_time: microseconds since 1970, UTC; left out, that of the decision.
        metrics: of the reward, as in `LoggedReward`.
    """

    decision: LoggedDecision
    reward: float | None = None
    reward_time: int | None = None
    metrics: Mapping[str, float] | None = None


Event = LoggedDecision | LoggedReward | LoggedObservation


def now() -> int:
    """Microseconds since 1970, UTC."""
    return time.time_ns() // 1000


def microseconds(moment: datetime) -> int:
    """A moment with a time zone as microseconds since 1970, UTC."""
    if moment.tzinfo is None:
        raise ValueError(f"a time needs a time zone, got {moment!r}; datetime.now(UTC) has one")
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
