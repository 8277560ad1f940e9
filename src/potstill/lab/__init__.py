"""The lab: problems whose best action is known, simulated or from tables, and what is run on them."""

from typing import TYPE_CHECKING, Any

from potstill.lab.environment import Environment
from potstill.lab.video import VideoUpload
from potstill.lab.wheel import Wheel

if TYPE_CHECKING:
    from potstill.lab.tables import ClassificationProblem, DoseProblem

__all__ = ["ClassificationProblem", "DoseProblem", "Environment", "VideoUpload", "Wheel"]


def __getattr__(name: str) -> Any:
    # Simulators do without Polars, which tables need.
    if name in ("ClassificationProblem", "DoseProblem"):
        from potstill.lab import tables

        return getattr(tables, name)
    raise AttributeError(f"module 'potstill.lab' has no attribute {name!r}")
