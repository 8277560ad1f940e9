"""Thompson sampling, distilled in batches into a small explicit policy.

The names below are the public surface. Those of the offline half, of workspaces and of clients are looked up when they
are first used, so that ``import potstill`` on a server or device brings nothing that learns.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from potstill._version import __version__
from potstill.keys import Key
from potstill.policy import Decision, InvalidPolicy, Policy
from potstill.problem import (
    Boolean,
    Categorical,
    Discrete,
    InvalidContext,
    InvalidObservation,
    InvalidProblem,
    Numeric,
    Observations,
    Problem,
    Reward,
)

if TYPE_CHECKING:
    from potstill import teachers
    from potstill.client import AsyncClient, Client, EdgeClient
    from potstill.distill import Report, Still, Student
    from potstill.workspace import Workspace

_LATER = {
    "AsyncClient": "potstill.client",
    "Client": "potstill.client",
    "EdgeClient": "potstill.client",
    "Report": "potstill.distill",
    "Still": "potstill.distill",
    "Student": "potstill.distill",
    "Workspace": "potstill.workspace",
    "teachers": "potstill.teachers",
}

__all__ = [
    "AsyncClient",
    "Boolean",
    "Categorical",
    "Client",
    "Decision",
    "Discrete",
    "EdgeClient",
    "InvalidContext",
    "InvalidObservation",
    "InvalidPolicy",
    "InvalidProblem",
    "Key",
    "Numeric",
    "Observations",
    "Policy",
    "Problem",
    "Report",
    "Reward",
    "Still",
    "Student",
    "Workspace",
    "__version__",
    "teachers",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'potstill' has no attribute {name!r}")
    try:
        module = importlib.import_module(_LATER[name])
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "potstill":
            raise
        raise ImportError(
            f"potstill.{name} learns, and learning needs {error.name!r}: pip install 'potstill[learn]'"
        ) from error
    return module if name == "teachers" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
