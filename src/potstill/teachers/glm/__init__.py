"""Bayesian generalised linear models per action, for rewards that are not normal."""

from potstill.teachers.glm import laplace
from potstill.teachers.glm.base import check_rewards
from potstill.teachers.glm.family import BERNOULLI, POISSON, Family
from potstill.teachers.glm.laplace import Expansion, LaplacePosterior, Predictors
from potstill.teachers.glm.logistic_ts import LogisticTS
from potstill.teachers.glm.poisson_ts import PoissonTS

__all__ = [
    "BERNOULLI",
    "POISSON",
    "Expansion",
    "Family",
    "LaplacePosterior",
    "LogisticTS",
    "PoissonTS",
    "Predictors",
    "check_rewards",
    "laplace",
]
