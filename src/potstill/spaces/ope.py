"""Off-policy evaluation for any space, from its contract alone; slower than a space's own module.

The reward model is one ridge regression for all actions, on the context, ``ActionSpace.embed(action)`` and their
products. Expectations are sums over ``distribution.nodes()``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from potstill.errors import InvalidAction, InvalidModel, InvalidTarget, UnsupportedSpace, shown
from potstill.spaces.contract import (
    Actions,
    ActionSpace,
    Allowed,
    Bool,
    Distribution,
    Float32,
    Float64,
    LoggedRows,
    LoggedSupport,
    RewardPredictions,
)
from potstill.spaces.ridge import FOLDS, FittedRidge, RegressionRows, fit_ridge, fold_rows

#: Largest relative deviation of a propensity from the uniform one that still counts as uniform.
_UNIFORM = 1e-3


@dataclass(frozen=True, eq=False)
class PointMass:
    """All probability on one action per row; on rows that do not allow it, another distribution.

    Attributes:
        actions: The action of each row.
        permitted: Rows that allow it, bool[N].
        fallback: The distribution of the other rows; None if there are none.
    """

    actions: Actions
    permitted: Bool
    fallback: Distribution | None

    def draw(self, u: Float64) -> Actions:
        """The action for any `u`; that of the fallback where it is not permitted."""
        if self.fallback is None:
            return self.actions
        rows = self.permitted.reshape(-1, *(1,) * (self.actions.ndim - 1))
        return np.where(rows, self.actions, self.fallback.draw(u))

    def propensity(self, actions: Actions) -> Float64:
        """1 for the action and 0 for others."""
        equal = same_actions(self.actions, actions).astype(np.float64)
        return equal if self.fallback is None else np.where(self.permitted, equal, self.fallback.propensity(actions))

    def drawn(self, u: Float64, actions: Actions, tolerance: float | Float64) -> Bool:
        """Whether `u` draws these actions; the point mass has no tolerance."""
        equal = same_actions(self.actions, actions)
        if self.fallback is None:
            return equal
        return np.where(self.permitted, equal, self.fallback.drawn(u, actions, tolerance))

    def nodes(self) -> Iterator[tuple[Actions, Float64]]:
        """The action, and the nodes of the fallback on its rows."""
        yield self.actions, self.permitted.astype(np.float64)
        for actions, weights in () if self.fallback is None else self.fallback.nodes():
            yield actions, np.where(self.permitted, 0.0, weights)


@dataclass(frozen=True, eq=False)
class SharedRidge:
    """One linear function of the context, the action's features and their products for each fold.

    Attributes:
        space: The action space.
        ridge: The regression, of one group.
    """

    space: ActionSpace
    ridge: FittedRidge

    def predict(self, contexts: Float32, actions: Actions, fold: int) -> Float64:
        """The reward of one action per row, float64[n]."""
        return self.ridge.predict(design(self.space, contexts, actions), fold)[:, 0]


@dataclass(frozen=True, eq=False)
class GeneralPredictions:
    """Predictions of a model that predicts one action per row at a time.

    Attributes:
        model: Reward model with ``predict(contexts, actions, fold)``, which returns float64[n].
        contexts: Encoded contexts, float32[n, d].
        first_row: Number of the first row, which determines the fold of each row.
        bounds: Smallest and largest possible reward.
    """

    model: Any
    contexts: Float32
    first_row: int
    bounds: tuple[float, float]

    def at(self, actions: Actions) -> Float64:
        """The predicted reward of one action per row."""
        predicted = np.empty(len(self.contexts))
        for fold in range(FOLDS):
            rows = fold_rows(self.first_row, fold)
            given = np.asarray(self.model.predict(self.contexts[rows], actions[rows], fold))
            if given.shape != predicted[rows].shape:
                raise InvalidModel(f"the reward model must give shape {predicted[rows].shape}, got {given.shape}")
            predicted[rows] = given
        bad = np.flatnonzero(~np.isfinite(predicted))
        if bad.size:
            row = self.first_row + bad[0]
            raise InvalidModel(f"row {row}: the reward model must be finite, got {predicted[bad[0]]}")
        return predicted.clip(*self.bounds)

    def expected(self, distribution: Distribution) -> Float64:
        """The sum over nodes; exact for a counting measure."""
        total = np.zeros(len(self.contexts))
        for actions, weights in distribution.nodes():
            total += weights * self.at(actions)
        return total


class GeneralSupport:
    """Logged actions of a counting measure whose actions are single numbers; others are not recorded."""

    def __init__(self, space: ActionSpace) -> None:
        self._counting = space.measure == "counting"
        self._logged: Actions | None = None

    def add(self, actions: Actions) -> None:
        """Record logged actions."""
        if self._counting and actions.ndim == 1:
            known = [] if self._logged is None else [self._logged]
            self._logged = np.unique(np.concatenate([*known, actions]))

    def missing(self, distribution: Distribution, rows: int) -> Float64:
        """The probability of actions that were never logged; zeros if none were recorded."""
        total, logged = np.zeros(rows), self._logged
        if logged is not None:
            for actions, weights in distribution.nodes():
                total += np.where(np.isin(actions, logged), 0.0, weights)
        return total


class GeneralOffPolicy:
    """Off-policy evaluation by the contract of the space."""

    def __init__(self, space: ActionSpace) -> None:
        self._space, self._head = space, space.head()
        self._features: int = space.embed(space.encode(list(space.examples)[:1])).shape[1]

    def columns(self, width: int) -> int:
        """Inputs of the reward model."""
        return width + self._features + width * self._features

    def permits(self, actions: Actions, allowed: Allowed) -> Bool:
        """Whether the uniform distribution over the allowed actions includes the action."""
        return self.uniform(len(actions), allowed).propensity(actions) > 0

    def unrestricted(self, rows: int) -> Allowed:
        """`Allowed` of rows without a restriction; `UnsupportedSpace` if the space has no array for that."""
        allowed = self._space.allow([None] * rows)
        if allowed is None:
            raise UnsupportedSpace(
                f"{shown(self._space)} has no array for rows that allow everything; state `eligible` in all blocks of "
                "the log, or in none"
            )
        return allowed

    def uniform(self, rows: int, allowed: Allowed | None) -> Distribution:
        """The head's distribution for outputs of zero."""
        return self._head.distribution(np.zeros((rows, self._head.outputs), np.float32), allowed, 0.0)

    def distribution(
        self, answer: Any, rows: int, allowed: Allowed | None, *, name: str, first_row: int
    ) -> Distribution:
        """Distributions unchanged; arrays of actions and lists of values as point masses."""
        if hasattr(answer, "propensity") and hasattr(answer, "nodes"):
            given: Distribution = answer
            return given
        actions = self._actions(answer, rows, name, first_row)
        if self._space.measure != "counting":
            raise UnsupportedSpace(
                f"{name} gives one action per row, which has no density on {shown(self._space)}; give a policy or "
                "distributions, or smooth over nearby actions with potstill.evaluate.continuous"
            )
        permitted = np.ones(rows, bool) if allowed is None else self.permits(actions, allowed)
        return PointMass(actions, permitted, None if permitted.all() else self.uniform(rows, allowed))

    def matched(self, distribution: Distribution, u: Float64, actions: Actions) -> Bool:
        """Whether the drawn action is the logged one."""
        if self._space.measure != "counting":
            return np.zeros(len(actions), bool)
        return same_actions(distribution.draw(u), actions)

    def is_uniform(self, actions: Actions, propensities: Float64, allowed: Allowed | None) -> bool:
        """Whether propensities are those of the uniform distribution."""
        uniform = self.uniform(len(actions), allowed).propensity(actions)
        return bool((np.abs(propensities - uniform) <= _UNIFORM * uniform).all())

    def support(self) -> LoggedSupport:
        """The distinct actions that were logged."""
        return GeneralSupport(self._space)

    def fit(self, rows: Iterable[tuple[int, LoggedRows]], penalties: Sequence[float], prior: float) -> SharedRidge:
        """One ridge regression for all actions."""
        blocks = (
            RegressionRows(
                first,
                design(self._space, block.contexts, block.actions),
                np.zeros(len(block.rewards), np.int32),
                block.rewards,
            )
            for first, block in rows
        )
        return SharedRidge(self._space, fit_ridge(blocks, 1, penalties, prior))

    def predictions(
        self, model: Any, contexts: Float32, first_row: int, bounds: tuple[float, float]
    ) -> RewardPredictions:
        """Predictions of ``model.predict(contexts, actions, fold)``, one action at a time."""
        return GeneralPredictions(model, contexts, first_row, bounds)

    def _actions(self, answer: Any, rows: int, name: str, first_row: int) -> Actions:
        if not isinstance(answer, (np.ndarray, list, tuple)) or len(answer) != rows:
            raise InvalidTarget(f"{name} must give an action for each of {rows} contexts, got {shown(answer)}")
        if not isinstance(answer, np.ndarray):
            try:
                return self._space.encode(answer)
            except InvalidAction as error:
                raise InvalidTarget(f"{name}, in the rows from {first_row} on: {error}") from error
        unknown = np.flatnonzero(~self._space.valid(answer))
        if unknown.size:
            row = first_row + unknown[0]
            raise InvalidTarget(f"{name}, row {row}: {answer[unknown[0]]} is not an action of {shown(self._space)}")
        return answer


def design(space: ActionSpace, contexts: Float32, actions: Actions) -> Float64:
    """Inputs of the shared regression, float64[n, d + e + d·e]."""
    return crossed(contexts, space.embed(actions))


def crossed(contexts: Float32, features: Float32) -> Float64:
    """Context, features of the action, and their products, float64[n, d + e + d·e]."""
    x, f = contexts.astype(np.float64), features.astype(np.float64)
    products = (x[:, :, None] * f[:, None, :]).reshape(len(x), x.shape[1] * f.shape[1])
    return np.concatenate([x, f, products], axis=1)


def same_actions(one: Actions, other: Actions) -> Bool:
    """Which rows hold the same action, bool[N]."""
    equal: Bool = np.equal(one, other)
    return np.asarray(equal.all(axis=tuple(range(1, equal.ndim))))


def off_policy(space: ActionSpace) -> GeneralOffPolicy:
    """Off-policy evaluation on any space."""
    return GeneralOffPolicy(space)
