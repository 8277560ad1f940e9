"""The decision problem: context features, actions and reward, encoded the same way online and offline."""

from potstill.errors import InvalidContext, InvalidObservation, InvalidProblem
from potstill.problem.difference import Difference, difference
from potstill.problem.features import (
    LARGEST_FLOAT32,
    Boolean,
    Categorical,
    Feature,
    Hashed,
    Holds,
    KernelFeature,
    Numeric,
    Text,
    Vector,
)
from potstill.problem.objective import Objective
from potstill.problem.observations import Observations
from potstill.problem.problem import Context, Contexts, Problem
from potstill.problem.reward import Reward, RewardKind, inferred_kind, seconds
from potstill.problem.validate import (
    LARGEST,
    MOST_METRICS,
    SUM_TOLERANCE,
    YEAR_2200,
    action_must_be,
    check_outcomes,
    encode_actions,
    numbers,
    propensities_fit,
    propensity_must_be,
    propensity_range,
    refuse_rows,
    reward_must_be,
    reward_range,
)
from potstill.spaces import ActionSpace, Continuous, Discrete

__all__ = [
    "LARGEST",
    "LARGEST_FLOAT32",
    "MOST_METRICS",
    "SUM_TOLERANCE",
    "YEAR_2200",
    "ActionSpace",
    "Boolean",
    "Categorical",
    "Context",
    "Contexts",
    "Continuous",
    "Difference",
    "Discrete",
    "Feature",
    "Hashed",
    "Holds",
    "InvalidContext",
    "InvalidObservation",
    "InvalidProblem",
    "KernelFeature",
    "Numeric",
    "Objective",
    "Observations",
    "Problem",
    "Reward",
    "RewardKind",
    "Text",
    "Vector",
    "action_must_be",
    "check_outcomes",
    "difference",
    "encode_actions",
    "inferred_kind",
    "numbers",
    "propensities_fit",
    "propensity_must_be",
    "propensity_range",
    "refuse_rows",
    "reward_must_be",
    "reward_range",
    "seconds",
]
