"""Posteriors over reward functions, behind one contract."""

from potstill.teachers.best import probability_best
from potstill.teachers.check import check_teacher
from potstill.teachers.contract import EXACT, AnyTeacher, Exactness, Stats, Summarising, Teacher
from potstill.teachers.function import FunctionTeacher
from potstill.teachers.linear import DiagonalLinearTS, LinearTS
from potstill.teachers.registry import TEACHERS, available, from_config, to_config
from potstill.teachers.states import InvalidState, load_state, save_state
from potstill.teachers.ucb import LinUCB
from potstill.teachers.uniform import Uniform

__all__ = [
    "EXACT",
    "TEACHERS",
    "AnyTeacher",
    "DiagonalLinearTS",
    "Exactness",
    "FunctionTeacher",
    "InvalidState",
    "LinUCB",
    "LinearTS",
    "Stats",
    "Summarising",
    "Teacher",
    "Uniform",
    "available",
    "check_teacher",
    "from_config",
    "load_state",
    "probability_best",
    "save_state",
    "to_config",
]
