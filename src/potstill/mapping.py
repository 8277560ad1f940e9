"""What maps a function over items: work that can be placed elsewhere takes a `Map`, and never asks where that is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

#: ``each(function, items, *common)``: maps a function over items, in their order, with arguments that all have.
Map = Callable[..., Iterator[Any]]


def in_turn(function: Callable[..., Any], items: Iterable[Any], *common: Any) -> Iterator[Any]:
    """One after the other, in this process, each when it is asked for."""
    return (function(item, *common) for item in items)
