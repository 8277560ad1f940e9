"""Engines by name, each imported when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from potstill.pipeline.engines.contract import Engine, MissingEngine
from potstill.pipeline.engines.local import LocalEngine

ENGINES = ("local", "ray")


@contextmanager
def open_engine(name: str = "local", address: str | None = None) -> Iterator[Engine]:
    """An engine for a while.

    Args:
        name: one of `ENGINES`.
        address: of a Ray cluster, or ``auto`` for the one that this machine belongs to; without one, Ray is started on
            this machine, for as long as the engine is open.
    """
    engine = _opened(name, address)
    try:
        yield engine
    finally:
        engine.close()


def _opened(name: str, address: str | None) -> Engine:
    if name == "local":
        if address is not None:
            raise ValueError(f"an address is for --engine ray; the local engine has none, got {address!r}")
        return LocalEngine()
    if name != "ray":
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {name!r}")
    try:
        from potstill.pipeline.engines.ray import RayEngine
    except ImportError as error:
        raise MissingEngine("the ray engine needs Ray; install it with pip install 'potstill[scale]'") from error
    return RayEngine(address)
