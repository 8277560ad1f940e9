"""Hyperparameters by preset: for each algorithm a teacher and, for its distilled policy, a student.

All differences between presets are in this table. A preset is the same for all problems.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from potstill.distill import Student, default_student
from potstill.teachers import (
    PAPER,
    AdaptiveTS,
    AnyTeacher,
    AutoTS,
    BootstrapTS,
    ContinuousGaussianProcessTS,
    ContinuousLinearTS,
    ContinuousNeuralLinearTS,
    EmpiricalLinearTS,
    ForestTS,
    GaussianProcessTS,
    LinearTS,
    LogisticTS,
    NeuralGreedy,
    NeuralLinearTS,
    NeuralLogisticTS,
    PoissonTS,
)


class Choice(msgspec.Struct, frozen=True):
    """A teacher, and the student that imitates it."""

    teacher: AnyTeacher
    student: Student


#: The paper's appendix "Experiment Details", which follows Riquelme, Tucker and Snoek (2018). Gaussian processes are
#: not among its experiments: there the teacher is Potstill's and only the student is the paper's. The code of Riquelme
#: et al. also clips gradients to norm 5 and draws weights from U(-0.3, 0.3); the paper mentions neither, and neither is
#: done here.
_PAPER: dict[str, AnyTeacher] = {
    "neural-greedy": NeuralGreedy(recipe=PAPER, standardise=False),
    "linear-ts": LinearTS(precision=0.25, alpha=6.0, beta=6.0),
    "neural-linear-ts": NeuralLinearTS(recipe=PAPER, standardise=False, precision=0.25, alpha=3.0, beta=3.0),
    "bootstrap-nn-ts": BootstrapTS(networks=10, bootstrap=False, recipe=PAPER, standardise=False),
    "gp-ts": GaussianProcessTS(),
}

#: Potstill's defaults for a teacher without options.
_POTSTILL: dict[str, AnyTeacher] = {
    "neural-greedy": NeuralGreedy(),
    "linear-ts": LinearTS(),
    "neural-linear-ts": NeuralLinearTS(),
    "bootstrap-nn-ts": BootstrapTS(),
    "gp-ts": GaussianProcessTS(),
    "adaptive-ts": AdaptiveTS(),
    "auto-ts": AutoTS(),
    "empirical-linear-ts": EmpiricalLinearTS(),
    "forest-ts": ForestTS(),
    "logistic-ts": LogisticTS(),
    "neural-logistic-ts": NeuralLogisticTS(),
    "poisson-ts": PoissonTS(),
    "continuous-linear-ts": ContinuousLinearTS(),
    "continuous-neural-linear-ts": ContinuousNeuralLinearTS(),
    "continuous-gp-ts": ContinuousGaussianProcessTS(),
}

PRESETS: dict[str, dict[str, Choice]] = {
    "paper": {name: Choice(teacher, Student.paper()) for name, teacher in _PAPER.items()},
    # The paper does not say whether its student starts from the policy before. This one starts afresh.
    "paper-fresh": {name: Choice(teacher, replace(Student.paper(), warm=None)) for name, teacher in _PAPER.items()},
    "potstill": {name: Choice(teacher, default_student(teacher)) for name, teacher in _POTSTILL.items()},
}
