"""The lab: problems whose best action is known, simulated or from tables, and experiments on them."""

from typing import TYPE_CHECKING

from potstill.lab.lazy import lazy

if TYPE_CHECKING:
    from potstill.lab.errors import LabError
    from potstill.lab.problems.environment import Environment
    from potstill.lab.problems.table import ClassificationProblem, DoseProblem
    from potstill.lab.problems.video import VideoUpload
    from potstill.lab.problems.wheel import Wheel

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
