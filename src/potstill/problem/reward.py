"""The reward, and how long to wait for it."""

from __future__ import annotations

import math
import re

import msgspec

from potstill.errors import InvalidProblem, shown

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Reward(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reward of a decision.

    Args:
        default: Reward of a decision for which none arrived in time.
        window: Time after the decision in which a reward counts: a whole number and ``s``, ``m``, ``h`` or ``d``.
        low: Smallest possible reward, if there is one; observations below it are refused.
        high: Largest possible reward, if there is one.
        objective: What is maximised, if not the reward itself: an expression of a continuous action and one other name,
            the outcome, such as ``"price * sold"``. Outcomes are then logged as rewards. Linear in the outcome.
    """

    default: float = 0.0
    window: str = "1h"
    low: float | None = None
    high: float | None = None
    objective: str | None = None

    def __post_init__(self) -> None:
        for field in ("default", "low", "high"):
            value = getattr(self, field)
            if value is not None:
                msgspec.structs.force_setattr(self, field, _finite(field, value))
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise InvalidProblem(f"reward: low must be below high, got low={self.low}, high={self.high}")
        _ = self.window_seconds
        if self.objective is not None and not isinstance(self.objective, str):
            raise InvalidProblem(
                f"reward: objective must be a text such as 'price * sold', got {shown(self.objective)}"
            )

    @property
    def window_seconds(self) -> int:
        """Window in seconds."""
        return seconds(self.window, "reward: window")


def seconds(text: object, what: str, *, zero: bool = False) -> int:
    """A duration such as ``15m`` in seconds; ``0s`` only if `zero` is true."""
    match = re.fullmatch(r"(\d{1,9})([smhd])", text) if isinstance(text, str) else None
    if not match or not (zero or int(match[1])):
        raise InvalidProblem(f"{what} must look like '30s', '15m', '1h' or '7d', got {shown(text)}")
    return int(match[1]) * _SECONDS[match[2]]


def _finite(field: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InvalidProblem(f"reward: {field} must be a finite number, got {shown(value)}")
    return float(value)
