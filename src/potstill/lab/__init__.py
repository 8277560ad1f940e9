"""The lab: problems whose best action is known, simulated or from tables, and experiments on them."""

from typing import TYPE_CHECKING

from potstill.lazy import lazy

if TYPE_CHECKING:
    from potstill.errors import LabError
    from potstill.lab.problems import ClassificationProblem, DoseProblem, Environment, VideoUpload, Wheel

__all__ = ["ClassificationProblem", "DoseProblem", "Environment", "LabError", "VideoUpload", "Wheel"]

__getattr__ = lazy(
    __name__,
    {
        "errors": ("LabError",),
        "problems.environment": ("Environment",),
        "problems.table": ("ClassificationProblem", "DoseProblem"),
        "problems.video": ("VideoUpload",),
        "problems.wheel": ("Wheel",),
    },
)
