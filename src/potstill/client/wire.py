"""Requests and replies as a client sends and reads them, and their JSON."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np

from potstill.errors import InvalidContext, shown
from potstill.problem import MOST_METRICS


class Answer(msgspec.Struct, frozen=True, repr_omit_defaults=True):
    """A decision of the service.

    Attributes:
        id: Id of the decision; its reward is reported under the same id.
        action: The action to carry out.
        propensity: The exact probability, or density, with which it was chosen.
        policy: Version of the policy that decided; None if none did.
        mode: ``online``, ``apprentice``, ``log-only``, ``fallback``, ``control`` or ``design``.
        would: In mode ``apprentice``, the action that the policy would have drawn.
        arm: Arm of an experiment, ``NAME:control`` or ``NAME:treatment``; None outside of experiments.
    """

    id: str
    action: Any
    propensity: float
    policy: int | None = None
    mode: str = "online"
    would: Any = None
    arm: str | None = None


class DecideRequest(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A decision to ask for."""

    context: Mapping[str, Any]
    id: str
    eligible: Any = None
    unit: str | None = None
    action: Any = None
    propensity: float | None = None


class Observation(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A decision that a device took, with its reward or without. `metrics` belong to the reward."""

    id: str
    context: Mapping[str, Any]
    action: Any
    propensity: float
    policy: int
    time: datetime
    eligible: Any = None
    floor: float | None = None
    unit: str | None = None
    reward: float | None = None
    reward_time: datetime | None = None
    metrics: Mapping[str, float] | None = None


class RewardReport(msgspec.Struct, omit_defaults=True):
    """A reward of a decision. The key makes retries count once. Metrics are other outcomes, by name."""

    id: str
    reward: float
    key: str
    time: datetime
    metrics: Mapping[str, float] | None = None


def reward_report(
    id: str,  # noqa: A002
    reward: float,
    key: str | None,
    time: datetime | None,
    metrics: Mapping[str, float] | None = None,
) -> RewardReport:
    """A checked reward, with a generated key and the current time where they are left out."""
    amount = _finite(reward, "reward")
    for name, text in (("id", id), ("key", key)):
        if text is not None and (not isinstance(text, str) or not text):
            raise ValueError(f"{name} must be a string that is not empty, got {shown(text)}")
    if time is not None and time.tzinfo is None:
        raise ValueError(f"time needs a time zone, got {time!r}; datetime.now(UTC) has one")
    return RewardReport(id, amount, key or uuid.uuid4().hex, time or now(), _metrics(metrics))


def _metrics(metrics: Mapping[str, float] | None) -> dict[str, float] | None:
    """Metrics as they are now; None if there are none."""
    if metrics is None:
        return None
    if not isinstance(metrics, Mapping):
        raise ValueError(f"metrics must be a mapping of names to numbers, got {shown(metrics)}")
    if len(metrics) > MOST_METRICS:
        raise ValueError(f"a reward may have at most {MOST_METRICS} metrics, got {len(metrics)}; leave some out")
    for name in metrics:
        if not isinstance(name, str) or not name:
            raise ValueError(f"a metric's name must be a string that is not empty, got {shown(name)}")
    return {name: _finite(value, f"metric {name!r}") for name, value in metrics.items()} or None


def _finite(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ValueError(f"{what} must be a number, got {shown(value)}")
    if not math.isfinite(value):
        raise ValueError(f"{what} must be a finite number, got {shown(value)}")
    return float(value)


def now() -> datetime:
    """The current time of this machine."""
    return datetime.now(UTC)


def encode(value: object) -> bytes:
    """A value as JSON; `InvalidContext` if JSON cannot express it."""
    try:
        data = _encode(value)
    except UnicodeEncodeError as error:
        raise InvalidContext(f"text must be valid Unicode, got {shown(error.object)}") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidContext(f"the context cannot be sent as JSON: {error}") from None
    if b"null" in data:  # msgspec writes NaN and infinity as null, which would pass for a missing value
        _refuse_not_finite(msgspec.to_builtins(value, enc_hook=_plain), "$")
    return data


def _refuse_not_finite(value: object, path: str) -> None:
    if isinstance(value, dict):
        for name, item in value.items():
            _refuse_not_finite(item, f"{path}.{name}")
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            _refuse_not_finite(item, f"{path}[{i}]")
    elif isinstance(value, float) and not math.isfinite(value):
        hint = "; send None if the feature may be missing" if ".context." in path else ""
        raise InvalidContext(f"expected a finite number, got {shown(value)}{hint} - at `{path}`")


def listed(name: str, bodies: Sequence[bytes]) -> bytes:
    """Encoded values as a list in an object: ``{"rewards": […]}``."""
    return b'{"%s":[%s]}' % (name.encode(), b",".join(bodies))


def _plain(value: Any) -> Any:
    """NumPy scalars, and subclasses of str, int and float, as plain values."""
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
