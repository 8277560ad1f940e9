"""The reward, and how long to wait for it."""

from __future__ import annotations

import math
import re
from typing import Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidProblem, shown

#: ``yes/no``: 0 or 1; ``count``: 0 or a positive whole number; ``number``: any number within the bounds.
RewardKind = Literal["yes/no", "count", "number"]
_KINDS: tuple[str, ...] = get_args(RewardKind)
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
        kind: What rewards are, if stated: ``yes/no`` (0 or 1), ``count`` (0, 1, 2, …) or ``number``; others are
            refused. It sets the bounds: ``yes/no`` has `low` 0 and `high` 1, and ``count`` has `low` 0 unless stated.
    """

    default: float = 0.0
    window: str = "1h"
    low: float | None = None
    high: float | None = None
    objective: str | None = None
    kind: RewardKind | None = None

    def __post_init__(self) -> None:
        for field in ("default", "low", "high"):
            value = getattr(self, field)
            if value is not None:
                msgspec.structs.force_setattr(self, field, _finite(field, value))
        if self.kind is not None:
            self._check_kind()
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise InvalidProblem(f"reward: low must be below high, got low={self.low}, high={self.high}")
        _ = self.window_seconds
        if self.objective is not None and not isinstance(self.objective, str):
            raise InvalidProblem(
                f"reward: objective must be a text such as 'price * sold', got {shown(self.objective)}"
            )

    def _check_kind(self) -> None:
        """Set the bounds of the kind; refuse a kind that does not exist, and bounds or a default that contradict it."""
        if self.kind not in _KINDS:
            raise InvalidProblem(f"reward: kind must be one of {', '.join(_KINDS)}, got {shown(self.kind)}")
        if self.kind == "yes/no" and (self.low not in (None, 0) or self.high not in (None, 1)):
            raise InvalidProblem(
                f"reward: kind 'yes/no' has rewards 0 and 1, got low={self.low}, high={self.high}; leave them out"
            )
        if self.kind == "count" and self.low is not None and self.low < 0:
            raise InvalidProblem(f"reward: kind 'count' has no negative rewards, got low={self.low}; leave it out")
        if self.whole:
            msgspec.structs.force_setattr(self, "low", self.low or 0.0)
        if self.kind == "yes/no":
            msgspec.structs.force_setattr(self, "high", 1.0)
        allowed = {"yes/no": self.default in (0, 1), "count": self.default >= 0 and self.default.is_integer()}
        if not allowed.get(self.kind, True):
            must = {"yes/no": "0 or 1", "count": "0 or a positive whole number"}[self.kind]
            raise InvalidProblem(f"reward: default of kind {self.kind!r} must be {must}, got {self.default}")

    @property
    def whole(self) -> bool:
        """Whether rewards must be whole numbers."""
        return self.kind in ("yes/no", "count")

    @property
    def window_seconds(self) -> int:
        """Window in seconds."""
        return seconds(self.window, "reward: window")


def inferred_kind(rewards: NDArray[np.float64]) -> RewardKind | None:
    """``yes/no`` if rewards, float64[N], are 0 and 1, with at least one of each; None if they show no kind."""
    found = np.unique(rewards)
    return "yes/no" if found.tolist() == [0.0, 1.0] else None


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
