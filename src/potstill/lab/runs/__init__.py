"""Runs: algorithms on scenarios in trials, their results and comparisons."""

from typing import TYPE_CHECKING

from potstill.lazy import lazy

if TYPE_CHECKING:
    from potstill.lab.runs import results
    from potstill.lab.runs.algorithms import ALGORITHMS
    from potstill.lab.runs.comparison import LEAST_TRIALS, Comparison, Estimate, Measure, expected_by_chance
    from potstill.lab.runs.presets import PRESETS
    from potstill.lab.runs.provenance import commit
    from potstill.lab.runs.results import Trial
    from potstill.lab.runs.run_spec import RunSpec
    from potstill.lab.runs.runner import Progress
    from potstill.lab.runs.terminal import display, duration, print_rows
    from potstill.lab.runs.trial import Agent, Distilled, Fixed, Turn, Undistilled, UpdateResult, play

__all__ = [
    "ALGORITHMS",
    "LEAST_TRIALS",
    "PRESETS",
    "Agent",
    "Comparison",
    "Distilled",
    "Estimate",
    "Fixed",
    "Measure",
    "Progress",
    "RunSpec",
    "Trial",
    "Turn",
    "Undistilled",
    "UpdateResult",
    "commit",
    "display",
    "duration",
    "expected_by_chance",
    "play",
    "print_rows",
    "results",
]

__getattr__ = lazy(
    __name__,
    {
        "algorithms": ("ALGORITHMS",),
        "comparison": (
            "Comparison",
            "Estimate",
            "LEAST_TRIALS",
            "Measure",
            "expected_by_chance",
        ),
        "presets": ("PRESETS",),
        "provenance": ("commit",),
        "results": ("Trial",),
        "run_spec": ("RunSpec",),
        "runner": ("Progress",),
        "terminal": (
            "display",
            "duration",
            "print_rows",
        ),
        "trial": (
            "Agent",
            "Distilled",
            "Fixed",
            "UpdateResult",
            "Turn",
            "Undistilled",
            "play",
        ),
    },
    modules=("results",),
)
