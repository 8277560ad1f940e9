"""Poisson-TS: Bayesian Poisson regression per action, for counts."""

from __future__ import annotations

from typing import ClassVar

from potstill.teachers.glm.base import GeneralisedLinear
from potstill.teachers.glm.family import POISSON, Family


class PoissonTS(GeneralisedLinear, frozen=True, kw_only=True, tag_field="type", tag="poisson-ts"):
    """Expected reward = exp(xᵀθ), independently per action, with Poisson noise: for counts that grow by factors.

    The prior of θ is centred on the pooled mean of all actions. Its precision is learnt from the data by Laplace
    evidence. The posterior is its Laplace approximation. Given that, propensities are exact: linear predictors are
    independent normal variables, and the exponential function keeps their order. Rewards may be fractions, and must not
    be negative. Their variance is taken to be their mean: where it is much larger, the posterior is too certain.
    """

    family: ClassVar[Family] = POISSON
