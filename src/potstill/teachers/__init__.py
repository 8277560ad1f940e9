"""Posteriors over reward functions, behind one contract."""

from potstill.teachers.best import probability_best
from potstill.teachers.check import check_teacher
from potstill.teachers.contract import EXACT, AnyTeacher, Exactness, Stats, Summarising, Teacher
from potstill.teachers.linear import LinearTS
from potstill.teachers.registry import TEACHERS, available, from_config, to_config
from potstill.teachers.uniform import Uniform

__all__ = [
    "EXACT",
    "TEACHERS",
    "AnyTeacher",
    "Exactness",
    "LinearTS",
    "Stats",
    "Summarising",
    "Teacher",
    "Uniform",
    "available",
    "check_teacher",
    "from_config",
    "probability_best",
    "to_config",
]
