"""Reward models: what actions would have earned in each context, never predicted from the row itself.

Rows fall into folds by their number, and the model of a fold has learnt from the other folds (cross-fitting).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from potstill.evaluate.blocks import numbered
from potstill.evaluate.log import Block, Log
from potstill.problem import Problem, Reward
from potstill.spaces import RewardPredictions, off_policy

#: Rewards as a function of encoded contexts float32[n, d]: of a list of actions, float[n, K]; of other spaces, a
#: function of contexts and actions that gives float[n].
RewardFunction: TypeAlias = Callable[..., NDArray[Any]]


class FittedModel(Protocol):
    """A reward model that has learnt.

    On a list of actions, ``predict(contexts, fold)`` gives the reward of each action, float64[n, K].
    On other spaces, ``predict(contexts, actions, fold)`` gives the reward of one action per row, float64[n].
    """

    @property
    def predict(self) -> Callable[..., NDArray[np.float64]]:
        """Predicted rewards for contexts float32[n, d] of rows of a fold."""


@runtime_checkable
class RewardModel(Protocol):
    """A reward model. Your own reads the log's rows with `numbered`, and may return itself."""

    def fit(self, log: Log) -> FittedModel:
        """Learn, for each fold, from the rows of the other folds."""


#: What evaluations accept as a model.
ModelLike: TypeAlias = RewardModel | RewardFunction


def fitted(model: ModelLike | None, log: Log) -> FittedModel:
    """A model fitted to a log: `RidgeModel` if none is given; functions are used unchanged."""
    if model is None:
        model = RidgeModel()
    return model.fit(log) if isinstance(model, RewardModel) else FunctionModel(model)


def predict(model: FittedModel, problem: Problem, block: Block, first_row: int) -> RewardPredictions:
    """The predicted rewards of a block, each row from the model of its fold.

    Predictions are clipped to the bounds of the reward, if the problem states them.
    """
    bounds = _bounds(problem.maximised)
    return off_policy(problem.actions).predictions(model, block.contexts, first_row, bounds)


def _bounds(reward: Reward) -> tuple[float, float]:
    return -np.inf if reward.low is None else reward.low, np.inf if reward.high is None else reward.high


@dataclass(frozen=True)
class FunctionModel:
    """Rewards that are known beforehand, as a function of encoded contexts; the same for all folds."""

    function: RewardFunction

    def predict(self, contexts: NDArray[np.float32], *actions_and_fold: Any) -> NDArray[np.float64]:
        """What the function gives for contexts, and for actions where the space is no list."""
        return np.asarray(self.function(contexts, *actions_and_fold[:-1]), np.float64)


@dataclass(frozen=True)
class RidgeModel:
    """Ridge regression of the reward, solved from sums of products that one pass collects.

    On a list of actions, each action has a regression of its own on the encoded context and an intercept. An action
    with few rows stays close to its mean; one without any gets the mean of all rows. On other spaces, one regression
    on the context, the features of the action and their products serves all actions.

    Columns are scaled to a standard deviation of one. The row that is predicted has influenced nothing but the choice
    among few penalties.

    Args:
        penalties: Candidates for the penalty on squared coefficients, in rows; the one with the smallest held-out
            error is used.
        prior: Weight of the mean of all actions against an action's own mean, in rows.
    """

    penalties: tuple[float, ...] = (0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0)
    prior: float = 1.0

    def fit(self, log: Log) -> FittedModel:
        """Fit to a log, in one pass."""
        fit: FittedModel = off_policy(log.problem.actions).fit(numbered(log), self.penalties, self.prior)
        return fit
