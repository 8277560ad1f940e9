"""Targets: whatever could have decided instead of what was logged, as probabilities of actions."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from potstill.errors import PotstillError, shown
from potstill.evaluate.log import Block
from potstill.keys import Key
from potstill.policy import Policy
from potstill.problem import SUM_TOLERANCE, Problem

if TYPE_CHECKING:
    from potstill.teachers.contract import AnyTeacher


Float64 = NDArray[np.float64]
#: Encoded contexts float32[n, d] to probabilities float[n, K], or to positions of actions int[n].
Function: TypeAlias = Callable[[NDArray[np.float32]], NDArray[Any]]


class InvalidTarget(PotstillError, ValueError):
    """A target does not say what it would have done; the message names the row and the way out."""


@runtime_checkable
class Target(Protocol):
    """Something that decides."""

    @property
    def name(self) -> str:
        """As reports call it."""

    def probabilities(self, block: Block, first_row: int) -> Float64:
        """The probability of each action in each row, float64[n, K]; 0 where not eligible, and rows add up to 1."""


#: What `target` makes a target of.
TargetLike: TypeAlias = "Target | Policy | str | tuple[AnyTeacher, Any, Key] | Function | NDArray[Any]"


def target(problem: Problem, what: TargetLike, name: str | None = None) -> Target:
    """A target of a problem.

    Where not all actions are eligible, the probability on the others is spread over the eligible ones in proportion,
    as policies do; if the eligible ones have none, evenly.

    Args:
        problem: of the log.
        what: a `Policy`; a teacher with its state and a key; an action's name; ``"uniform"``; ``"logged"``, what was
            done; a function of encoded contexts float32[n, d] that gives probabilities float[n, K] or positions of
            actions int[n]; probabilities of all rows, float[N, K]; or a target of your own.
        name: as reports call it; a fitting one if left out.
    """
    made = _made(problem, what)
    if name is not None:
        made.name = name
    return made


def _made(problem: Problem, what: TargetLike) -> _Given:
    match what:
        case np.ndarray():  # first, as an array is not compared with words
            return Matrix(problem, what)
        case Policy():
            return PolicyTarget(problem, what)
        case "logged":
            return Logged(problem)
        case "uniform":
            return Uniform(problem)
        case str():
            return FixedAction(problem, what)
        case (teacher, state, Key() as key) if hasattr(teacher, "propensities"):
            return TeacherTarget(problem, teacher, state, key)
        case _Given():
            return copy(what)
        case _ if isinstance(what, Target):
            return OwnTarget(problem, what)
        case _ if callable(what):
            return FunctionTarget(problem, what)
    raise InvalidTarget(
        f"a target is a policy, (teacher, state, key), an action's name, 'uniform', 'logged', a function or an array "
        f"of probabilities, got {shown(what)}"
    )


class _Given:
    """A target whose answers are checked, and spread over what is eligible."""

    name: str

    def __init__(self, problem: Problem, name: str) -> None:
        self.name = name
        self._actions = len(problem.actions)

    def probabilities(self, block: Block, first_row: int) -> Float64:
        """The probability of each action in each row, float64[n, K]."""
        given = self._give(block, first_row)
        return within(_checked(given, len(block), self._actions, self.name, first_row), block.eligible)

    def _give(self, block: Block, first_row: int) -> NDArray[Any]:
        raise NotImplementedError


class Logged(_Given):
    """What was done, as it was done: each row weighs one, and the value is the plain mean of rewards."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, "logged")

    def _give(self, block: Block, first_row: int) -> NDArray[Any]:  # noqa: ARG002
        raise InvalidTarget("the log does not say how probable the other actions were; give the policy that decided")


class Uniform(_Given):
    """Each eligible action with the same probability."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, "uniform")

    def _give(self, block: Block, first_row: int) -> NDArray[Any]:  # noqa: ARG002
        return np.full((len(block), self._actions), 1 / self._actions)


class FixedAction(_Given):
    """The same action in every row; where it is not eligible, any that is."""

    def __init__(self, problem: Problem, name: str) -> None:
        if name not in problem.actions.names:
            raise InvalidTarget(
                f"unknown action {name!r}; the actions are {', '.join(problem.actions.names)}, and other targets are "
                "'uniform' and 'logged'"
            )
        super().__init__(problem, name)
        self._row = np.zeros(self._actions)
        self._row[problem.actions.index(name)] = 1

    def _give(self, block: Block, first_row: int) -> NDArray[Any]:  # noqa: ARG002
        return np.tile(self._row, (len(block), 1))


class PolicyTarget(_Given):
    """A policy."""

    def __init__(self, problem: Problem, policy: Policy) -> None:
        if policy.problem.hash != problem.hash:
            raise InvalidTarget(
                f"the policy decides {policy.problem.name!r} ({policy.problem.hash}), but the log is of "
                f"{problem.name!r} ({problem.hash}); their features or actions differ"
            )
        super().__init__(problem, f"policy {policy.version}")
        self._policy = policy

    def _give(self, block: Block, first_row: int) -> NDArray[Any]:  # noqa: ARG002
        return self._policy.probabilities_many(block.contexts, eligible=block.eligible)


class TeacherTarget(_Given):
    """A teacher that has learnt: how probable it is under its posterior that each action is the best one."""

    def __init__(self, problem: Problem, teacher: AnyTeacher, state: Any, key: Key) -> None:
        super().__init__(problem, type(teacher).__name__)
        self._teacher, self._state, self._key = teacher, state, key

    def _give(self, block: Block, first_row: int) -> NDArray[Any]:
        # Each block has a key of its own, as rows would share their draws otherwise.
        return np.asarray(self._teacher.propensities(self._state, block.contexts, self._key.child(first_row)))


class FunctionTarget(_Given):
    """A function of encoded contexts."""

    def __init__(self, problem: Problem, function: Function) -> None:
        super().__init__(problem, getattr(function, "__name__", "function").strip("<>"))
        self._function = function

    def _give(self, block: Block, first_row: int) -> NDArray[Any]:
        given = np.asarray(self._function(block.contexts))
        if given.ndim == 1 and given.dtype.kind in "iu":
            return _one_hot(given, len(block), self._actions, self.name, first_row)
        return given


class Matrix(_Given):
    """Probabilities of all rows of the log."""

    def __init__(self, problem: Problem, rows: NDArray[Any]) -> None:
        super().__init__(problem, "probabilities")
        if rows.ndim != 2 or rows.shape[1] != self._actions:
            raise InvalidTarget(
                f"probabilities must be float[N, {self._actions}], one column per action, got shape {rows.shape}"
            )
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def _give(self, block: Block, first_row: int) -> NDArray[Any]:
        end = first_row + len(block)
        if end > len(self._rows):
            raise InvalidTarget(f"probabilities have {len(self._rows)} rows, but the log has {end} or more")
        return self._rows[first_row:end]


class OwnTarget(_Given):
    """A target of the caller's."""

    def __init__(self, problem: Problem, own: Target) -> None:
        super().__init__(problem, own.name)
        self._own = own

    def _give(self, block: Block, first_row: int) -> NDArray[Any]:
        return np.asarray(self._own.probabilities(block, first_row))


def within(probabilities: Float64, eligible: NDArray[np.bool_] | None) -> Float64:
    """Probabilities with what was not eligible spread over the eligible ones, in proportion or else evenly."""
    if eligible is None:
        return probabilities
    outside = np.flatnonzero((probabilities * ~eligible).any(axis=1))
    kept = probabilities[outside] * eligible[outside]
    kept[kept.sum(axis=1) == 0] = 1
    kept *= eligible[outside]
    spread = probabilities.copy()
    spread[outside] = kept / kept.sum(axis=1, keepdims=True)
    return spread


def _checked(given: NDArray[Any], rows: int, actions: int, name: str, first_row: int) -> Float64:
    if given.shape != (rows, actions) or given.dtype.kind not in "fiu":
        raise InvalidTarget(
            f"{name} must give probabilities float[{rows}, {actions}] for {rows} contexts, or actions int[{rows}], "
            f"got {given.dtype}{list(given.shape)}"
        )
    p = given.astype(np.float64)
    negative = ~(p.min(axis=1) >= 0)
    _refuse(negative, p, name, first_row, "probabilities must be at least 0")
    off = np.abs(p.sum(axis=1) - 1) > SUM_TOLERANCE
    _refuse(off, p, name, first_row, "probabilities must add up to 1")
    return p


def _refuse(bad: NDArray[np.bool_], p: Float64, name: str, first_row: int, reason: str) -> None:
    rows = np.flatnonzero(bad)
    if rows.size:
        row = p[rows[0]]
        raise InvalidTarget(
            f"{name}, row {first_row + rows[0]}: {reason}, got {np.round(row, 6).tolist()}, which sum to "
            f"{row.sum():.6g} ({rows.size} such rows here)"
        )


def _one_hot(chosen: NDArray[Any], rows: int, actions: int, name: str, first_row: int) -> Float64:
    if len(chosen) != rows:
        raise InvalidTarget(f"{name} must give an action for each of {rows} contexts, got {len(chosen)}")
    unknown = np.flatnonzero((chosen < 0) | (chosen >= actions))
    if unknown.size:
        raise InvalidTarget(
            f"{name}, row {first_row + unknown[0]}: an action must be a position from 0 to {actions - 1}, "
            f"got {chosen[unknown[0]]}"
        )
    p = np.zeros((rows, actions))
    p[np.arange(rows), chosen] = 1
    return p
