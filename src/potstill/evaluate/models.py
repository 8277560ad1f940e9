"""Reward models: what each action would have earned in each context, never predicted from the row itself.

Rows fall into `FOLDS` folds by their number; the model of a fold has learnt from the other folds (cross-fitting, as in
Chernozhukov et al. 2018, "Double/debiased machine learning").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from potstill.errors import PotstillError
from potstill.evaluate.gram import FOLDS, Sums, pieces
from potstill.evaluate.log import Block, Log
from potstill.problem import Problem, Reward

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
#: Encoded contexts float32[n, d] to rewards float[n, K].
RewardFunction: TypeAlias = Callable[[Float32], NDArray[Any]]


class InvalidModel(PotstillError, ValueError):
    """A reward model gives something else than one finite number per row and action."""


class FittedModel(Protocol):
    """A reward model that has learnt."""

    def predict(self, contexts: Float32, fold: int) -> Float64:
        """The reward of each action, float64[n, K], for contexts float32[n, d] of rows of a fold."""


@runtime_checkable
class RewardModel(Protocol):
    """A reward model. Your own reads the log's rows with `numbered`, and may return itself."""

    def fit(self, log: Log) -> FittedModel:
        """Learn, for each fold, from the rows of the other folds."""


#: What evaluations take for a model.
ModelLike: TypeAlias = RewardModel | RewardFunction


def fitted(model: ModelLike | None, log: Log) -> FittedModel:
    """A model that has learnt from a log: `RidgeModel` if none is given; functions are taken as they are."""
    if model is None:
        model = RidgeModel()
    return model.fit(log) if isinstance(model, RewardModel) else FunctionModel(model)


def predictions(model: FittedModel, problem: Problem, block: Block, first_row: int) -> Float64:
    """The reward of each action in each row of a block, float64[n, K], each from the model of the row's fold.

    They are cut off at the bounds of the reward, if the problem states them: no reward lies beyond.
    """
    predicted = np.empty((len(block), len(problem.actions)))
    for fold in range(FOLDS):
        rows = slice((fold - first_row) % FOLDS, None, FOLDS)
        given = model.predict(block.contexts[rows], fold)
        if given.shape != predicted[rows].shape:
            raise InvalidModel(f"the reward model must give shape {predicted[rows].shape}, got {given.shape}")
        predicted[rows] = given
    bad = np.flatnonzero(~np.isfinite(predicted).all(axis=1))
    if bad.size:
        raise InvalidModel(f"row {first_row + bad[0]}: the reward model must be finite, got {predicted[bad[0]]}")
    return _bounded(predicted, problem.reward)


def _bounded(predicted: Float64, reward: Reward) -> Float64:
    low = -np.inf if reward.low is None else reward.low
    high = np.inf if reward.high is None else reward.high
    return predicted.clip(low, high)


@dataclass(frozen=True)
class FunctionModel:
    """Rewards that are known beforehand, as a function of encoded contexts; the same for all folds."""

    function: RewardFunction

    def predict(self, contexts: Float32, fold: int) -> Float64:  # noqa: ARG002 - the same for all folds
        """What the function gives."""
        return np.asarray(self.function(contexts), np.float64)


@dataclass(frozen=True)
class RidgeModel:
    """Ridge regression of the reward on the encoded context and an intercept, for each action apart.

    It is solved from sums of products that one pass collects, so memory does not grow with the log. Columns are
    scaled to a standard deviation of one. An action with few rows stays close to its mean; one without any gets the
    mean of all rows. Of the row that is predicted, nothing is known but the choice among few penalties.

    Args:
        penalties: on squared coefficients, each as heavy as so many rows; for each action the one with the smallest
            held-out error is taken.
        prior: how many rows the mean of all actions counts as, against an action's own.
    """

    penalties: tuple[float, ...] = (0.1, 1.0, 10.0, 100.0, 1000.0, 10_000.0)
    prior: float = 1.0

    def fit(self, log: Log) -> FittedRidge:
        """Learn from a log."""
        sums = Sums.of(log)
        slopes = np.ones(len(sums.columns.scale))
        solved = np.stack([sums.solve(np.append(penalty * slopes, self.prior)) for penalty in self.penalties])
        best = np.argmin([sums.held_out(coefficients) for coefficients in solved], axis=0)
        chosen = solved[best, :, np.arange(len(best))].swapaxes(0, 1)
        weights, constants = sums.columns.on_contexts(chosen)
        means = sums.offset + sums.means()
        return FittedRidge(weights, constants + means[:, None], tuple(self.penalties[i] for i in best))


@dataclass(frozen=True, eq=False)
class FittedRidge:
    """A linear function of the context for each fold and action.

    Attributes:
        weights: of encoded features, float64[F, d, K].
        constants: float64[F, K].
        penalties: as chosen for each action.
    """

    weights: Float64
    constants: Float64
    penalties: tuple[float, ...]

    def predict(self, contexts: Float32, fold: int) -> Float64:
        """The reward of each action, float64[n, K]."""
        actions = self.constants.shape[1]
        cut = (pieces(contexts, actions) @ self.weights[fold]).reshape(-1, actions)
        predicted: Float64 = cut[: len(contexts)] + self.constants[fold]
        return predicted
