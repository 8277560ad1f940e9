"""Lazy doors: a room exports names of its modules and imports a module when a name is first used.

`potstill --help` then loads neither Polars nor charts nor JAX, and a serving host does without them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def tables_for(what: str) -> Any:
    """The room of tables, for what takes a frame; `ImportError` says what to install where Polars is missing.

    The rooms below it are loaded where decisions are made, and do not import it.
    """
    try:
        return import_module("potstill.tables")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "potstill":
            raise
        raise ImportError(f"{what} reads tables, which needs {error.name!r}: pip install 'potstill[lake]'") from error


def lazy(package: str, exports: Mapping[str, tuple[str, ...]], modules: Collection[str] = ()) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package.

    Args:
        package: Name of the package.
        exports: Names that it exports, by the module that has them.
        modules: Modules that it exports as a whole.
    """
    homes = {name: module for module, names in exports.items() for name in names}

    def get(name: str) -> Any:
        if name in modules:
            return import_module(f"{package}.{name}")
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return get
