"""Optional dependencies: which extra brings which module, and what to install when one is missing."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from potstill.cli.common import fail


class Extra(NamedTuple):
    """An extra of the package.

    Attributes:
        modules: Modules that it brings, the characteristic one first.
        purpose: What it is for.
    """

    modules: tuple[str, ...]
    purpose: str


EXTRAS = {
    "lake": Extra(("deltalake", "polars", "obstore", "scipy"), "workspaces: events, join, experiments, object stores"),
    "learn": Extra(("jax", "jaxlib", "optax", "scipy", "sklearn"), "teachers and distillation"),
    "serve": Extra(("uvicorn", "starlette", "prometheus_client", "httptools", "uvloop"), "the decision service"),
    "client": Extra(("httpx", "sniffio"), "clients of the service"),
    "lab": Extra(("altair", "vl_convert", "fastexcel"), "the paper's evaluation, your own tables, the demo, reports"),
    "onnx": Extra(("onnx",), "export to ONNX"),
    "programs": Extra(("numpyro",), "reward models written as probabilistic programs"),
    "sql": Extra(("duckdb",), "tables by SQL queries, from files and databases"),
    "openfeature": Extra(("openfeature",), "an OpenFeature provider"),
    "scale": Extra(("ray",), "updates on several machines"),
    "peers": Extra(("vowpalwabbit", "mabwiser", "bayesianbandits"), "other libraries in the lab, to compare against"),
}


def is_installed(extra: str) -> bool:
    """Whether the modules of an extra can be imported."""
    return all(importlib.util.find_spec(module) is not None for module in EXTRAS[extra].modules[:1])


@contextmanager
def requires(*extras: str) -> Iterator[None]:
    """Say what to install when a module is missing; a decorator of a command, or a context manager.

    Args:
        extras: The extras that the command needs.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "potstill").split(".")[0]
        if module == "potstill":
            raise
        brings = [extra for extra, (modules, _) in EXTRAS.items() if module in modules] or list(extras[:1])
        missing = [extra for extra in extras if extra in brings or not is_installed(extra)] or brings
        fail(f"this command needs {module!r}, which is not installed: pip install 'potstill[{','.join(missing)}]'")
