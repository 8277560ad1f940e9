"""Randomised experiments as they are served: which arm a unit is in, and what control does."""

from potstill.experiments.assignment import Assignment, unit_of
from potstill.experiments.config import UNIT, ExperimentConfig, InvalidExperiment, in_words
from potstill.experiments.rules import Control, Rules, load_control

__all__ = [
    "UNIT",
    "Assignment",
    "Control",
    "ExperimentConfig",
    "InvalidExperiment",
    "Rules",
    "in_words",
    "load_control",
    "unit_of",
]
