"""Posteriors over reward functions, behind one contract."""

from potstill.teachers.adaptive.adaptive_ts import AdaptiveTS
from potstill.teachers.conformance import check_teacher
from potstill.teachers.contract import (
    EXACT,
    AnyFiniteTeacher,
    AnyTeacher,
    Exactness,
    FiniteTeacher,
    NeedsFiniteActions,
    Parts,
    Rereading,
    Stats,
    Summarising,
    Teacher,
)
from potstill.teachers.explicit import FunctionTeacher, Uniform
from potstill.teachers.gp.gp_ts import GaussianProcessTS
from potstill.teachers.gp.max_variance import max_variance_design
from potstill.teachers.linear.lin_ucb import LinUCB
from potstill.teachers.linear.linear_ts import DiagonalLinearTS, LinearTS
from potstill.teachers.neural.bootstrap_ts import BootstrapTS
from potstill.teachers.neural.greedy import EpsilonGreedy, NeuralGreedy
from potstill.teachers.neural.low_rank_ts import LowRankTS
from potstill.teachers.neural.neural_linear_ts import NeuralLinearTS
from potstill.teachers.neural.recipe import PAPER, Recipe
from potstill.teachers.probability_best import probability_best
from potstill.teachers.program.program_ts import ProgramTS
from potstill.teachers.propensities import label
from potstill.teachers.registry import TEACHERS, available, check_support, from_config, to_config
from potstill.teachers.states import InvalidState, load_state, save_state

__all__ = [
    "EXACT",
    "PAPER",
    "TEACHERS",
    "AdaptiveTS",
    "AnyFiniteTeacher",
    "AnyTeacher",
    "BootstrapTS",
    "DiagonalLinearTS",
    "EpsilonGreedy",
    "Exactness",
    "FiniteTeacher",
    "FunctionTeacher",
    "GaussianProcessTS",
    "InvalidState",
    "LinUCB",
    "LinearTS",
    "LowRankTS",
    "NeedsFiniteActions",
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
    "check_support",
    "check_teacher",
    "from_config",
    "label",
    "load_state",
    "max_variance_design",
    "probability_best",
    "save_state",
    "to_config",
]
