"""What goes over the wire, and how it becomes JSON."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from potstill.problem.errors import InvalidContext, shown


class Answer(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """What the service decided.

    Attributes:
        id: names the decision; its reward is reported under the same id.
        action: to be carried out.
        propensity: the exact probability with which that action was chosen.
        policy: version of the policy that decided; None if none did.
        mode: ``online``, ``apprentice``, ``log-only`` or ``fallback``.
        would: in mode ``apprentice``, the action that the policy would have taken.
    """

    id: str
    action: str
    propensity: float
    policy: int | None = None
    mode: str = "online"
    would: str | None = None


class DecideRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A context to decide in."""

    context: Mapping[str, Any]
    id: str
    eligible: Sequence[str] | None = None
    unit: str | None = None
    action: str | None = None


class Observation(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A decision that was taken elsewhere; its rewards may come with it or later."""

    id: str
    context: Mapping[str, Any]
    action: str
    propensity: float
    policy: int
    time: datetime
    eligible: Sequence[str] | None = None
    floor: float | None = None
    unit: str | None = None
    reward: float | None = None
    reward_time: datetime | None = None


class RewardReport(msgspec.Struct, omit_defaults=True):
    """A reward of a decision; the key makes a retry count once."""

    id: str
    reward: float
    key: str
    time: datetime


def reward_report(id: str, reward: float, key: str | None, time: datetime | None) -> RewardReport:  # noqa: A002
    """A reward that is sound, with a key and a time of its own if it was given none."""
    if isinstance(reward, bool) or not isinstance(reward, (int, float, np.integer, np.floating)):
        raise ValueError(f"reward must be a number, got {shown(reward)}")
    if not math.isfinite(reward):
        raise ValueError(f"reward must be a finite number, got {shown(reward)}")
    for name, text in (("id", id), ("key", key)):
        if text is not None and (not isinstance(text, str) or not text):
            raise ValueError(f"{name} must be a string that is not empty, got {shown(text)}")
    if time is not None and time.tzinfo is None:
        raise ValueError(f"time needs a time zone, got {time!r}; datetime.now(UTC) has one")
    return RewardReport(id, float(reward), key or uuid.uuid4().hex, time or now())


def now() -> datetime:
    """The time of the machine, which is what a device has."""
    return datetime.now(UTC)


def encode(value: object) -> bytes:
    """As JSON; what JSON has no word for is refused."""
    try:
        return _encode(value)
    except UnicodeEncodeError as error:
        raise InvalidContext(f"text must be valid Unicode, got {shown(error.object)}") from None
    except (TypeError, OverflowError) as error:
        raise InvalidContext(f"the context cannot be sent as JSON: {error}") from None


def listed(name: str, bodies: Sequence[bytes]) -> bytes:
    """Values that are JSON already, as a list in an object: ``{"rewards": […]}``."""
    return b'{"%s":[%s]}' % (name.encode(), b",".join(bodies))


def _plain(value: Any) -> Any:
    """NumPy scalars, and subclasses of str, int and float, as what the encoder knows."""
    if isinstance(value, np.generic):
        return float(value) if isinstance(value, np.floating) else value.item()
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value) if isinstance(value, int) else float(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"expected a plain value, got {shown(value)}")


_encode = msgspec.json.Encoder(enc_hook=_plain).encode
