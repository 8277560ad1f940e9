"""Problems of the lab: simulators, tables, replayed logs, and the scenarios that run them."""

from typing import TYPE_CHECKING

from potstill.lazy import lazy

if TYPE_CHECKING:
    from potstill.lab.problems.data import MissingData, download, located, tables
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
    from potstill.lab.problems.label import Label, label_of
    from potstill.lab.problems.numbers import Bidding, Pricing, TableDose
    from potstill.lab.problems.prior import GaussianProcessPrior, LinearPrior
    from potstill.lab.problems.scenarios import (
        NUMBERS,
        SCENARIOS,
        TABLES,
        OwnTable,
        Scenario,
        check_table_file,
        find_scenario,
        is_known,
        own_scenario,
        refuse_unused,
        scenario,
        usual_batch,
    )
    from potstill.lab.problems.table import ClassificationProblem, DoseProblem, TableProblem, read_table
    from potstill.lab.problems.video import BITRATES, VideoUpload
    from potstill.lab.problems.wheel import Wheel

__all__ = [
    "BITRATES",
    "NUMBERS",
    "SCENARIOS",
    "TABLES",
    "Bidding",
    "Choices",
    "ClassificationProblem",
    "Columns",
    "DoseProblem",
    "Environment",
    "Float32",
    "Float64",
    "GaussianProcessPrior",
    "Label",
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
    "check_table_file",
    "download",
    "find_scenario",
    "is_known",
    "label_of",
    "located",
    "own_scenario",
    "read_table",
    "refuse_unused",
    "regrets",
    "scenario",
    "tables",
    "usual_batch",
]

__getattr__ = lazy(
    __name__,
    {
        "data": (
            "MissingData",
            "download",
            "located",
            "tables",
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
        "label": (
            "Label",
            "label_of",
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
            "TABLES",
            "check_table_file",
            "find_scenario",
            "is_known",
            "own_scenario",
            "refuse_unused",
            "scenario",
            "usual_batch",
        ),
        "table": (
            "ClassificationProblem",
            "DoseProblem",
            "TableProblem",
            "read_table",
        ),
        "video": (
            "BITRATES",
            "VideoUpload",
        ),
        "wheel": ("Wheel",),
    },
)
