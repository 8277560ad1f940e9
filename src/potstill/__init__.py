"""Thompson sampling, distilled in batches into a small explicit policy.

The names below are the public surface. Those of the offline half, of workspaces and of clients are imported on first
use, so that ``import potstill`` on a server or device loads nothing that learns.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from potstill._version import __version__
from potstill.errors import PotstillError
from potstill.keys import Key
from potstill.policy import Decision, InvalidPolicy, Policy
from potstill.problem import (
    Boolean,
    Catalog,
    Categorical,
    Continuous,
    Discrete,
    Hashed,
    InvalidContext,
    InvalidObservation,
    InvalidProblem,
    Numeric,
    Observations,
    Problem,
    Reward,
    Text,
    Timestamp,
    Vector,
)

if TYPE_CHECKING:
    from potstill import evaluate, spaces, teachers
    from potstill.client import AsyncClient, Client, EdgeClient
    from potstill.distill import Report, Still, Student
    from potstill.events import EventLog, LoggedDecision, LoggedReward
    from potstill.workspace import Workspace

_LATER = {
    "AsyncClient": "potstill.client",
    "Client": "potstill.client",
    "EdgeClient": "potstill.client",
    "EventLog": "potstill.events",
    "LoggedDecision": "potstill.events",
    "LoggedReward": "potstill.events",
    "Report": "potstill.distill",
    "Still": "potstill.distill",
    "Student": "potstill.distill",
    "Workspace": "potstill.workspace",
    "evaluate": "potstill.evaluate",
    "spaces": "potstill.spaces",
    "teachers": "potstill.teachers",
}
#: Names that are rooms, not what a room exports.
_ROOMS = ("evaluate", "spaces", "teachers")

__all__ = [
    "AsyncClient",
    "Boolean",
    "Catalog",
    "Categorical",
    "Client",
    "Continuous",
    "Decision",
    "Discrete",
    "EdgeClient",
    "EventLog",
    "Hashed",
    "InvalidContext",
    "InvalidObservation",
    "InvalidPolicy",
    "InvalidProblem",
    "Key",
    "LoggedDecision",
    "LoggedReward",
    "Numeric",
    "Observations",
    "Policy",
    "PotstillError",
    "Problem",
    "Report",
    "Reward",
    "Still",
    "Student",
    "Text",
    "Timestamp",
    "Vector",
    "Workspace",
    "__version__",
    "evaluate",
    "spaces",
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
    return module if name in _ROOMS else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
