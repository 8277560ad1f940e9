"""Logistic-TS: Bayesian logistic regression per action, for rewards that are 0 or 1."""

from __future__ import annotations

from typing import ClassVar

from potstill.teachers.glm.base import GeneralisedLinear
from potstill.teachers.glm.family import BERNOULLI, Family


class LogisticTS(GeneralisedLinear, frozen=True, kw_only=True, tag_field="type", tag="logistic-ts"):
    """P(reward = 1) = logistic(xᵀθ), independently per action: for clicks, purchases and other rewards of yes or no.

    The prior of θ is centred on the pooled rate of all actions. Its precision is learnt from the data by Laplace
    evidence. The posterior is its Laplace approximation. Given that, propensities are exact: linear predictors are
    independent normal variables, and the logistic function keeps their order.
    """

    family: ClassVar[Family] = BERNOULLI
