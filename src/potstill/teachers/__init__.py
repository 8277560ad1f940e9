"""Posteriors over reward functions, behind one contract."""

from potstill.teachers.adaptive import AdaptiveTS
from potstill.teachers.auto import AutoTS
from potstill.teachers.catalog import CatalogLinearTS
from potstill.teachers.conformance import check_teacher
from potstill.teachers.continuous import ContinuousGaussianProcessTS, ContinuousLinearTS, ContinuousNeuralLinearTS
from potstill.teachers.contract import (
    EXACT,
    AnyContinuousTeacher,
    AnyFiniteTeacher,
    AnyTeacher,
    ContinuousTeacher,
    Exactness,
    FiniteTeacher,
    Informative,
    ItemEffects,
    MaskedTeacher,
    MeanRewards,
    NeedsFiniteActions,
    Parts,
    PerAction,
    Rereading,
    Selecting,
    Stats,
    Summarising,
    Teacher,
    has_informed_prior,
    has_sharp_labels,
    labels_masks,
    reward_kinds,
)
from potstill.teachers.explicit import FunctionTeacher, Uniform
from potstill.teachers.forest import ForestTS
from potstill.teachers.glm import LogisticTS, PoissonTS
from potstill.teachers.gp import DeepKernelTS, Design, GaussianProcessTS, GaussianProcessUCB, max_variance_design
from potstill.teachers.linear import Coefficient, DiagonalLinearTS, EmpiricalLinearTS, LinearTS, LinUCB
from potstill.teachers.neural import (
    PAPER,
    BootstrapTS,
    EpsilonGreedy,
    LowRankTS,
    NeuralGreedy,
    NeuralLinearTS,
    NeuralLogisticTS,
    Recipe,
)
from potstill.teachers.plugins import load_class, make_teacher
from potstill.teachers.probability_best import probability_best
from potstill.teachers.program import ContinuousProgramTS, ModelFile, ProgramTS, program_from
from potstill.teachers.propensities import is_masked, label
from potstill.teachers.registry import TEACHERS, available, check_support, default_teacher, from_config, to_config
from potstill.teachers.source import Source
from potstill.teachers.states import InvalidState, digest, load_state, metadata_of, pack, save_state, unpack

__all__ = [
    "EXACT",
    "PAPER",
    "TEACHERS",
    "AdaptiveTS",
    "AnyContinuousTeacher",
    "AnyFiniteTeacher",
    "AnyTeacher",
    "AutoTS",
    "BootstrapTS",
    "CatalogLinearTS",
    "Coefficient",
    "ContinuousGaussianProcessTS",
    "ContinuousLinearTS",
    "ContinuousNeuralLinearTS",
    "ContinuousProgramTS",
    "ContinuousTeacher",
    "DeepKernelTS",
    "Design",
    "DiagonalLinearTS",
    "EmpiricalLinearTS",
    "EpsilonGreedy",
    "Exactness",
    "FiniteTeacher",
    "ForestTS",
    "FunctionTeacher",
    "GaussianProcessTS",
    "GaussianProcessUCB",
    "Informative",
    "InvalidState",
    "ItemEffects",
    "LinUCB",
    "LinearTS",
    "LogisticTS",
    "LowRankTS",
    "MaskedTeacher",
    "MeanRewards",
    "ModelFile",
    "NeedsFiniteActions",
    "NeuralGreedy",
    "NeuralLinearTS",
    "NeuralLogisticTS",
    "Parts",
    "PerAction",
    "PoissonTS",
    "ProgramTS",
    "Recipe",
    "Rereading",
    "Selecting",
    "Source",
    "Stats",
    "Summarising",
    "Teacher",
    "Uniform",
    "available",
    "check_support",
    "check_teacher",
    "default_teacher",
    "digest",
    "from_config",
    "has_informed_prior",
    "has_sharp_labels",
    "is_masked",
    "label",
    "labels_masks",
    "load_class",
    "load_state",
    "make_teacher",
    "max_variance_design",
    "metadata_of",
    "pack",
    "probability_best",
    "program_from",
    "reward_kinds",
    "save_state",
    "to_config",
    "unpack",
]
