"""The local engine: in this process, one item after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from potstill.mapping import in_turn
from potstill.pipeline.engines.contract import ItemT, ResultT


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
