"""Keys of rewards: generated ones, and how the lake keeps callers' keys apart from its own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from itertools import count

#: Key of a reward that was sent together with its decision.
OBSERVATION = "observation"
_ESCAPE = "\\"


def _new_keys() -> Iterator[str]:
    """Keys that no other process has: 96 random bits, and a count. Random bits for each key take longer."""
    return map(f"{secrets.token_urlsafe(12)}-%x".__mod__, count())


_keys = _new_keys()


def generated_key() -> str:
    """A key that no other reward has, on any machine."""
    return next(_keys)


def stored_key(key: str | None) -> str | None:
    r"""A caller's key as the lake stores it: never `OBSERVATION`, and different for different keys.

    >>> stored_key("click"), stored_key("observation"), stored_key("\\x")
    ('click', '\\observation', '\\\\x')
    """
    if key is not None and (key == OBSERVATION or key.startswith(_ESCAPE)):
        return _ESCAPE + key
    return key


def _after_fork() -> None:
    global _keys
    _keys = _new_keys()


os.register_at_fork(after_in_child=_after_fork)
