"""Off-policy evaluation on a list of actions, with arrays over rows and actions, float64[n, K]."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidAction, InvalidLog, InvalidModel, InvalidTarget
from potstill.spaces.contract import Actions, Bool, FiniteSpace, Float32, Float64, LoggedRows
from potstill.spaces.finite import FiniteDistribution
from potstill.spaces.ridge import FOLDS, FittedRidge, RegressionRows, fit_ridge, fold_rows

#: Largest accepted deviation of a row's probabilities from summing to 1: float32 rounding over many actions.
SUM_TOLERANCE = 1e-4
#: Largest relative deviation of a propensity from one over the number of allowed actions that still counts as uniform.
_UNIFORM = 1e-3


class FinitePredictions(NamedTuple):
    """Predicted rewards of all actions, float64[n, K]."""

    rewards: Float64

    def at(self, actions: Actions) -> Float64:
        """The predicted reward of one action per row."""
        taken: Float64 = np.take_along_axis(self.rewards, actions[:, None], axis=1)[:, 0]
        return taken

    def expected(self, distribution: FiniteDistribution) -> Float64:
        """The sum of predictions, weighted by probabilities."""
        expected: Float64 = np.einsum("nk,nk->n", distribution.p, self.rewards)
        return expected


class FiniteSupport:
    """Which of K actions were logged."""

    def __init__(self, actions: int) -> None:
        self.logged = np.zeros(actions, bool)

    def add(self, actions: Actions) -> None:
        """Record logged positions."""
        self.logged[actions] = True

    def missing(self, distribution: FiniteDistribution, rows: int) -> Float64:  # noqa: ARG002
        """The probability of actions that were never logged."""
        missing: Float64 = distribution.p[:, ~self.logged].sum(axis=1)
        return missing


class FiniteOffPolicy:
    """Distributions are `FiniteDistribution` in float64; a reward model predicts all actions at once."""

    def __init__(self, space: FiniteSpace) -> None:
        self._space, self._actions = space, len(space)

    def columns(self, width: int) -> int:
        """The context, or one number per action."""
        return max(width, self._actions)

    def permits(self, actions: Actions, allowed: Bool) -> Bool:
        """Whether the mask holds the action."""
        shape = len(actions), self._actions
        if allowed.shape != shape:
            raise InvalidLog(
                f"eligible must have shape {shape}, got {allowed.shape}; is this the log of another problem?"
            )
        permitted: Bool = allowed[np.arange(len(actions)), actions]
        return permitted

    def unrestricted(self, rows: int) -> Bool:
        """A mask of all actions."""
        return np.ones((rows, self._actions), bool)

    def uniform(self, rows: int, allowed: Bool | None) -> FiniteDistribution:
        """One over the number of allowed actions."""
        return FiniteDistribution(spread(np.full((rows, self._actions), 1 / self._actions), allowed))

    def distribution(
        self, answer: Any, rows: int, allowed: Bool | None, *, name: str, first_row: int
    ) -> FiniteDistribution:
        """Probabilities float[n, K], positions int[n] or a list of values, spread over the allowed actions."""
        given = self._array(answer, name)
        if given.ndim == 1 and given.dtype.kind in "iu":
            given = self._one_hot(given, rows, name, first_row)
        return FiniteDistribution(spread(self._checked(given, rows, name, first_row), allowed))

    def matched(self, distribution: FiniteDistribution, u: Float64, actions: Actions) -> Bool:
        """Whether the action drawn by inverse CDF is the logged one."""
        below = np.cumsum(distribution.p, axis=1)
        chosen = (below <= (u[:, 0] * below[:, -1])[:, None]).sum(axis=1)
        matched: Bool = chosen == actions
        return matched

    def is_uniform(self, actions: Actions, propensities: Float64, allowed: Bool | None) -> bool:  # noqa: ARG002
        """Whether each propensity is one over the number of allowed actions."""
        count = self._actions if allowed is None else allowed.sum(axis=1)
        return bool((np.abs(propensities * count - 1) <= _UNIFORM).all())

    def support(self) -> FiniteSupport:
        """A flag for each action."""
        return FiniteSupport(self._actions)

    def fit(self, rows: Iterable[tuple[int, LoggedRows]], penalties: Sequence[float], prior: float) -> FittedRidge:
        """A ridge regression on the context for each action: names carry no information about similarity."""
        blocks = (RegressionRows(first, block.contexts, block.actions, block.rewards) for first, block in rows)
        return fit_ridge(blocks, self._actions, penalties, prior)

    def predictions(
        self, model: Any, contexts: Float32, first_row: int, bounds: tuple[float, float]
    ) -> FinitePredictions:
        """Predictions of ``model.predict(contexts, fold)``, each row by its fold's model, float64[n, K]."""
        predicted = np.empty((len(contexts), self._actions))
        for fold in range(FOLDS):
            rows = fold_rows(first_row, fold)
            given = model.predict(contexts[rows], fold)
            if given.shape != predicted[rows].shape:
                raise InvalidModel(f"the reward model must give shape {predicted[rows].shape}, got {given.shape}")
            predicted[rows] = given
        bad = np.flatnonzero(~np.isfinite(predicted).all(axis=1))
        if bad.size:
            raise InvalidModel(f"row {first_row + bad[0]}: the reward model must be finite, got {predicted[bad[0]]}")
        return FinitePredictions(predicted.clip(*bounds))

    def _array(self, answer: Any, name: str) -> NDArray[Any]:
        if isinstance(answer, FiniteDistribution):
            return answer.p
        if not isinstance(answer, list) or not answer or not isinstance(answer[0], str):
            return np.asarray(answer)
        try:
            return self._space.encode(answer)
        except InvalidAction as error:
            raise InvalidTarget(f"{name}: {error}") from error

    def _checked(self, given: NDArray[Any], rows: int, name: str, first_row: int) -> Float64:
        if given.shape != (rows, self._actions) or given.dtype.kind not in "fiu":
            raise InvalidTarget(
                f"{name} must give probabilities float[{rows}, {self._actions}] for {rows} contexts, or positions of "
                f"actions int[{rows}], got {given.dtype}{list(given.shape)}"
            )
        p = given.astype(np.float64)
        _refuse(~(p.min(axis=1) >= 0), p, name, first_row, "probabilities must be at least 0")
        _refuse(np.abs(p.sum(axis=1) - 1) > SUM_TOLERANCE, p, name, first_row, "probabilities must add up to 1")
        return p

    def _one_hot(self, chosen: NDArray[Any], rows: int, name: str, first_row: int) -> Float64:
        if len(chosen) != rows:
            raise InvalidTarget(f"{name} must give an action for each of {rows} contexts, got {len(chosen)}")
        unknown = np.flatnonzero((chosen < 0) | (chosen >= self._actions))
        if unknown.size:
            raise InvalidTarget(
                f"{name}, row {first_row + unknown[0]}: an action must be a position from 0 to {self._actions - 1}, "
                f"got {chosen[unknown[0]]}"
            )
        p = np.zeros((rows, self._actions))
        p[np.arange(rows), chosen] = 1
        return p


def spread(probabilities: Float64, allowed: Bool | None) -> Float64:
    """Probabilities with the mass of disallowed actions moved to the allowed ones, in proportion or else evenly."""
    if allowed is None:
        return probabilities
    outside = np.flatnonzero((probabilities * ~allowed).any(axis=1))
    inside = probabilities[outside] * allowed[outside]
    inside[inside.sum(axis=1) == 0] = 1
    inside *= allowed[outside]
    moved = probabilities.copy()
    moved[outside] = inside / inside.sum(axis=1, keepdims=True)
    return moved


def _refuse(bad: Bool, p: Float64, name: str, first_row: int, reason: str) -> None:
    rows = np.flatnonzero(bad)
    if rows.size:
        row = p[rows[0]]
        raise InvalidTarget(
            f"{name}, row {first_row + rows[0]}: {reason}, got {np.round(row, 6).tolist()}, which sum to "
            f"{row.sum():.6g} ({rows.size} such rows in this block)"
        )


def off_policy(space: FiniteSpace) -> FiniteOffPolicy:
    """Off-policy evaluation on a list of actions."""
    return FiniteOffPolicy(space)
