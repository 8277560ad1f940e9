"""Posteriors over reward functions, behind one contract."""

from potstill.teachers.adaptive import AdaptiveTS
from potstill.teachers.best import probability_best
from potstill.teachers.bootstrap import BootstrapTS
from potstill.teachers.check import check_teacher
from potstill.teachers.contract import EXACT, AnyTeacher, Exactness, Parts, Rereading, Stats, Summarising, Teacher
from potstill.teachers.function import FunctionTeacher
from potstill.teachers.gaussian_process import GaussianProcessTS
from potstill.teachers.greedy import EpsilonGreedy, NeuralGreedy
from potstill.teachers.linear import DiagonalLinearTS, LinearTS
from potstill.teachers.low_rank import LowRankTS
from potstill.teachers.max_variance import max_variance_design
from potstill.teachers.neural_linear import NeuralLinearTS
from potstill.teachers.program import ProgramTS
from potstill.teachers.recipe import PAPER, Recipe
from potstill.teachers.registry import TEACHERS, available, from_config, to_config
from potstill.teachers.states import InvalidState, load_state, save_state
from potstill.teachers.ucb import LinUCB
from potstill.teachers.uniform import Uniform

__all__ = [
    "EXACT",
    "PAPER",
    "TEACHERS",
    "AdaptiveTS",
    "AnyTeacher",
    "BootstrapTS",
    "DiagonalLinearTS",
    "EpsilonGreedy",
    "Exactness",
    "FunctionTeacher",
    "GaussianProcessTS",
    "InvalidState",
    "LinUCB",
    "LinearTS",
    "LowRankTS",
    "NeuralGreedy",
    "NeuralLinearTS",
    "Parts",
    "ProgramTS",
    "Recipe",
    "Rereading",
    "Stats",
    "Summarising",
    "Teacher",
    "Uniform",
    "available",
    "check_teacher",
    "from_config",
    "load_state",
    "max_variance_design",
    "probability_best",
    "save_state",
    "to_config",
]
