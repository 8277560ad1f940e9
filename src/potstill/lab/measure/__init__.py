"""Latency and complexity of one decision."""

from typing import TYPE_CHECKING

from potstill.lazy import lazy

if TYPE_CHECKING:
    from potstill.lab.measure.complexity import Growth
    from potstill.lab.measure.latency import LEARNT, PROBLEMS, Latency
    from potstill.lab.measure.measurements import Machine, Measurements, take_measurements
    from potstill.lab.measure.same_language import SameLanguage

__all__ = ["LEARNT", "PROBLEMS", "Growth", "Latency", "Machine", "Measurements", "SameLanguage", "take_measurements"]

__getattr__ = lazy(
    __name__,
    {
        "complexity": ("Growth",),
        "latency": (
            "LEARNT",
            "Latency",
            "PROBLEMS",
        ),
        "measurements": (
            "Machine",
            "Measurements",
            "take_measurements",
        ),
        "same_language": ("SameLanguage",),
    },
)
