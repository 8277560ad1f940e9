"""What an engine does: it maps a function over items, and says nothing about what the function does.

Functions are at the top level of a module, and equal arguments give equal results: an engine may call one twice for an
item, when it has lost the first answer. So files have equal names and bytes, or names of their own that nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class MissingEngine(ImportError):
    """An engine is not installed; the message says what to install."""


class EngineFailed(RuntimeError):
    """An engine cannot be reached, or has lost an item too often; the message says which and why."""


class Engine(Protocol):
    """A place to do work in."""

    @property
    def name(self) -> str:
        """As on the command line."""

    @property
    def workers(self) -> int:
        """How many items are worked on at a time."""

    @property
    def dashboard(self) -> str | None:
        """The address of a page on which to watch the work, where there is one."""

    def map(self, function: Callable[..., ResultT], items: Iterable[ItemT], *common: Any) -> Iterator[ResultT]:
        """``function(item, *common)`` of each item, in the order of the items; few items are taken ahead.

        What a function raises is raised here, as it is.
        """

    def close(self) -> None:
        """Give back what was taken. A cluster that was there before stays."""
