"""Thompson sampling, distilled in batches into a small explicit policy.

The names below are the public surface. Those of the offline half are looked up when they are first used, so that
``import potstill`` on a server or device brings nothing that learns.
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
    from potstill.distill import Student
    from potstill.still import Report, Still

_OFFLINE = {
    "Report": "potstill.still",
    "Still": "potstill.still",
    "Student": "potstill.distill",
    "teachers": "potstill.teachers",
}

__all__ = [
    "Boolean",
    "Categorical",
    "Decision",
    "Discrete",
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
    "__version__",
    "teachers",
]


def __getattr__(name: str) -> Any:
    if name not in _OFFLINE:
        raise AttributeError(f"module 'potstill' has no attribute {name!r}")
    try:
        module = importlib.import_module(_OFFLINE[name])
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "potstill":
            raise
        raise ImportError(
            f"potstill.{name} learns, and learning needs {error.name!r}: pip install 'potstill[learn]'"
        ) from error
    return module if name == "teachers" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
