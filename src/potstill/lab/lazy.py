"""Lazy doors: a folder of the lab exports names of its modules and imports a module when a name is first used.

`potstill --help` and simulations then load neither Polars nor charts nor JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(package: str, exports: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """A module's ``__getattr__`` for names by the module of the package that has them."""
    homes = {name: module for module, names in exports.items() for name in names}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return get
