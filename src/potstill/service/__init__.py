"""The decision service over HTTP. What other rooms use is imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from potstill.service.app import create_app
    from potstill.service.auth import Guard
    from potstill.service.limits import Options
    from potstill.service.metrics import Metrics
    from potstill.service.schemas import example_context
    from potstill.service.snapshot import read_mode
    from potstill.service.tokens import TokenFile, token_file

__all__ = [
    "Guard",
    "Metrics",
    "Options",
    "TokenFile",
    "create_app",
    "example_context",
    "read_mode",
    "token_file",
]

# Modules of the service run as processes of their own, which should load no more than they use.
_HOMES = {
    "Guard": "auth",
    "Metrics": "metrics",
    "Options": "limits",
    "TokenFile": "tokens",
    "create_app": "app",
    "example_context": "schemas",
    "read_mode": "snapshot",
    "token_file": "tokens",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
