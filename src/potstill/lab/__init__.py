"""The lab: problems whose best action is known, simulated or from tables, and what is run on them."""

from typing import TYPE_CHECKING, Any

from potstill.lab.problems.environment import Environment
from potstill.lab.problems.video import VideoUpload
from potstill.lab.problems.wheel import Wheel

if TYPE_CHECKING:
    from potstill.lab.problems.table import ClassificationProblem, DoseProblem

__all__ = ["ClassificationProblem", "DoseProblem", "Environment", "VideoUpload", "Wheel"]


def __getattr__(name: str) -> Any:
    # Simulators do without Polars, which tables need.
    if name in ("ClassificationProblem", "DoseProblem"):
        from potstill.lab.problems import table

        return getattr(table, name)
    raise AttributeError(f"module 'potstill.lab' has no attribute {name!r}")
