"""The processes of `potstill serve`: a supervisor, workers, a flusher and updaters."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from potstill.service.process.serve import CannotServe, Service, Settings, run

__all__ = ["CannotServe", "Service", "Settings", "run"]


def __getattr__(name: str) -> Any:
    # Imported when used: each process runs a module of this folder, and should load no other.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.serve"), name)
