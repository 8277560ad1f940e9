"""What is decided: context features, actions, reward; the same encoding online and offline."""

from potstill.errors import InvalidContext, InvalidObservation, InvalidProblem
from potstill.problem.features import Boolean, Categorical, Feature, Numeric
from potstill.problem.observations import Observations
from potstill.problem.problem import Context, Contexts, Problem
from potstill.problem.reward import Reward
from potstill.spaces import ActionSpace, Discrete

__all__ = [
    "ActionSpace",
    "Boolean",
    "Categorical",
    "Context",
    "Contexts",
    "Discrete",
    "Feature",
    "InvalidContext",
    "InvalidObservation",
    "InvalidProblem",
    "Numeric",
    "Observations",
    "Problem",
    "Reward",
]
