"""A value for each arm, by name, so that nobody has to remember which one comes first."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")


class Arms(msgspec.Struct, Generic[T], frozen=True):
    """What control has, and what treatment has."""

    control: T
    treatment: T
