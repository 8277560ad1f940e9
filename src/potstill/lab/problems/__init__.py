"""Problems of the lab: simulators, tables, replayed logs, and the scenarios that run them."""

from typing import TYPE_CHECKING

from potstill.lazy import lazy

if TYPE_CHECKING:
    from potstill.lab.problems.data import MissingData, download, located
    from potstill.lab.problems.environment import (
        Choices,
        Columns,
        Environment,
        Float32,
        Float64,
        Simulation,
        World,
        regrets,
    )
    from potstill.lab.problems.numbers import Bidding, Pricing, TableDose
    from potstill.lab.problems.prior import GaussianProcessPrior, LinearPrior
    from potstill.lab.problems.scenarios import (
        NUMBERS,
        SCENARIOS,
        OwnTable,
        Scenario,
        find_scenario,
        is_known,
        refuse_unused,
        scenario,
    )
    from potstill.lab.problems.table import ClassificationProblem, DoseProblem, TableProblem
    from potstill.lab.problems.video import BITRATES, VideoUpload
    from potstill.lab.problems.wheel import Wheel

__all__ = [
    "BITRATES",
    "NUMBERS",
    "SCENARIOS",
    "Bidding",
    "Choices",
    "ClassificationProblem",
    "Columns",
    "DoseProblem",
    "Environment",
    "Float32",
    "Float64",
    "GaussianProcessPrior",
    "LinearPrior",
    "MissingData",
    "OwnTable",
    "Pricing",
    "Scenario",
    "Simulation",
    "TableDose",
    "TableProblem",
    "VideoUpload",
    "Wheel",
    "World",
    "download",
    "find_scenario",
    "is_known",
    "located",
    "refuse_unused",
    "regrets",
    "scenario",
]

__getattr__ = lazy(
    __name__,
    {
        "data": (
            "MissingData",
            "download",
            "located",
        ),
        "environment": (
            "Columns",
            "Choices",
            "Environment",
            "Float32",
            "Float64",
            "Simulation",
            "World",
            "regrets",
        ),
        "numbers": (
            "Bidding",
            "Pricing",
            "TableDose",
        ),
        "prior": (
            "GaussianProcessPrior",
            "LinearPrior",
        ),
        "scenarios": (
            "NUMBERS",
            "OwnTable",
            "SCENARIOS",
            "Scenario",
            "find_scenario",
            "is_known",
            "refuse_unused",
            "scenario",
        ),
        "table": (
            "ClassificationProblem",
            "DoseProblem",
            "TableProblem",
        ),
        "video": (
            "BITRATES",
            "VideoUpload",
        ),
        "wheel": ("Wheel",),
    },
)
