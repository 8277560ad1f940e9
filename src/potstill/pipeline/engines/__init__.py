"""What an engine does: it maps a function over items, and says nothing about what the function does.

Functions are at the top level of a module, and equal arguments give equal results: an engine may call one twice for an
item, when it has lost the first answer. So files have equal names and bytes, or names of their own that nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from potstill.errors import InvalidOption, PotstillError
from potstill.parallel import in_turn

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


ENGINES = ("local", "ray")


class MissingEngine(PotstillError, ImportError):
    """An engine is not installed; the message says what to install."""


class EngineFailed(PotstillError, RuntimeError):
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


class LocalEngine:
    """One item is in memory at a time; the functions themselves use the cores of the machine."""

    name = "local"
    workers = 1
    dashboard: str | None = None

    def map(self, function: Callable[..., ResultT], items: Iterable[ItemT], *common: Any) -> Iterator[ResultT]:
        """``function(item, *common)`` of each item, when it is asked for."""
        return in_turn(function, items, *common)

    def close(self) -> None:
        """Nothing to give back."""


@contextmanager
def open_engine(name: str = "local", address: str | None = None) -> Iterator[Engine]:
    """An engine for a while.

    Args:
        name: One of `ENGINES`.
        address: Address of a Ray cluster, or ``auto`` for the one that this machine belongs to. Without one, Ray is
            started on this machine and stopped with the engine.
    """
    engine = _opened(name, address)
    try:
        yield engine
    finally:
        engine.close()


def _opened(name: str, address: str | None) -> Engine:
    if name == "local":
        if address is not None:
            raise InvalidOption(f"an address is for --engine ray; the local engine has none, got {address!r}")
        return LocalEngine()
    if name != "ray":
        raise InvalidOption(f"engine must be one of {', '.join(ENGINES)}, got {name!r}")
    try:
        from potstill.pipeline.engines.ray import RayEngine
    except ImportError as error:
        raise MissingEngine("the ray engine needs Ray; install it with pip install 'potstill[scale]'") from error
    return RayEngine(address)
