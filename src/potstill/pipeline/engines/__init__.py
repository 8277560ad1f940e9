"""Execution engines: map a function over items, locally or on a Ray cluster.

Functions must be deterministic and defined at the top level of a module. An engine may call a function twice for an
item, if the first result was lost. Side effects must therefore be idempotent: files have equal names and bytes, or
unique names.
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
    """An engine cannot be reached or has lost an item too often; the message gives the reason."""


class Engine(Protocol):
    """An execution engine."""

    @property
    def name(self) -> str:
        """Name of the engine on the command line."""

    @property
    def workers(self) -> int:
        """Number of items processed in parallel."""

    @property
    def dashboard(self) -> str | None:
        """URL of the engine's dashboard; None without one."""

    def map(self, function: Callable[..., ResultT], items: Iterable[ItemT], *common: Any) -> Iterator[ResultT]:
        """Yield ``function(item, *common)`` for each item, in order, with a bounded look-ahead.

        Exceptions of the function are raised unchanged.
        """

    def close(self) -> None:
        """Release resources. A cluster that was running before keeps running."""


class LocalEngine:
    """Processes one item at a time in this process; the functions use all cores themselves."""

    name = "local"
    workers = 1
    dashboard: str | None = None

    def map(self, function: Callable[..., ResultT], items: Iterable[ItemT], *common: Any) -> Iterator[ResultT]:
        """Yield ``function(item, *common)`` for each item, lazily."""
        return in_turn(function, items, *common)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


@contextmanager
def open_engine(name: str = "local", address: str | None = None) -> Iterator[Engine]:
    """Open an engine for the duration of a context.

    Args:
        name: One of `ENGINES`.
        address: Address of a Ray cluster, or ``auto`` for the cluster of this machine. Without one, Ray is started on
            this machine and stopped with the engine.
    """
    engine = _open(name, address)
    try:
        yield engine
    finally:
        engine.close()


def _open(name: str, address: str | None) -> Engine:
    if name == "local":
        if address is not None:
            raise InvalidOption(f"--address needs --engine ray; the local engine has no address, got {address!r}")
        return LocalEngine()
    if name != "ray":
        raise InvalidOption(f"engine must be one of {', '.join(ENGINES)}, got {name!r}")
    try:
        from potstill.pipeline.engines.ray import RayEngine
    except ImportError as error:
        raise MissingEngine("the ray engine needs Ray; install it with pip install 'potstill[scale]'") from error
    return RayEngine(address)
