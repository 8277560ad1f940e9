"""Targets of an evaluation: what could have decided in place of the logging policy, as distributions over actions."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidAction, InvalidTarget, shown
from potstill.evaluate.log import Block
from potstill.keys import Key
from potstill.policy import Policy
from potstill.problem import Problem
from potstill.spaces import Distribution, finite, off_policy

if TYPE_CHECKING:
    from potstill.teachers import AnyFiniteTeacher

#: Encoded contexts float32[n, d] to actions, rows first, or to a `Distribution`; for a list of actions also to
#: probabilities float[n, K].
TargetFunction: TypeAlias = Callable[[NDArray[np.float32]], Any]


@runtime_checkable
class Target(Protocol):
    """A policy to evaluate."""

    @property
    def name(self) -> str:
        """Name in reports."""

    def distribution(self, block: Block, first_row: int) -> Distribution:
        """The distribution over actions in each row of a block, restricted to what is eligible."""


@runtime_checkable
class ProbabilityTarget(Protocol):
    """A policy to evaluate on a list of actions, by the probability of each action."""

    @property
    def name(self) -> str:
        """Name in reports."""

    def probabilities(self, block: Block, first_row: int) -> NDArray[Any]:
        """The probability of each action in each row, float[n, K]."""


@runtime_checkable
class ActionTarget(Protocol):
    """A policy to evaluate by one action per row."""

    @property
    def name(self) -> str:
        """Name in reports."""

    def actions(self, block: Block, first_row: int) -> Any:
        """The action of each row: encoded actions, rows first, or a list of values."""


#: What `target` accepts. An action's value is one of them.
TargetLike: TypeAlias = (
    "Target | ProbabilityTarget | ActionTarget | Policy | str | tuple[AnyFiniteTeacher, Any, Key] | TargetFunction"
    " | Any"
)


def target(problem: Problem, what: TargetLike, name: str | None = None) -> Target:
    """A target of a problem.

    On a list of actions, the probability of actions that are not eligible is spread over the eligible ones in
    proportion, as policies do; if the eligible ones have none, evenly. A number that is not allowed becomes the nearest
    one that is. On other spaces, an action that is not allowed becomes the uniform distribution over what is.

    Args:
        problem: Problem of the log.
        what: A `Policy`; a teacher with its state and a key; an action; ``"uniform"``; ``"logged"``, what was done; a
            function of encoded contexts float32[n, d] that gives actions (an array, or a list of values), a
            `Distribution`, or, for a list of actions, probabilities float[n, K]; an array of any of these for all
            rows; or a `Target` of your own.
        name: Name in reports; a fitting one if left out.
    """
    made = _make(problem, what)
    if name is not None:
        made.name = name
    return made


def _make(problem: Problem, what: TargetLike) -> _CheckedTarget:
    match what:
        case np.ndarray():  # first, as an array cannot be compared with words
            return ArrayTarget(problem, what)
        case Policy():
            return PolicyTarget(problem, what)
        case "logged":
            return LoggedTarget(problem)
        case "uniform":
            return UniformTarget(problem)
        case (teacher, state, Key() as key) if hasattr(teacher, "propensities"):
            return TeacherTarget(problem, teacher, state, key)
        case _CheckedTarget():
            return copy(what)
        case Target() | ProbabilityTarget() | ActionTarget():
            return CustomTarget(problem, what)
        case _ if callable(what):
            return FunctionTarget(problem, what)
    return FixedActionTarget(problem, what)


class _CheckedTarget:
    """A target whose answers are checked, and restricted to what is eligible."""

    name: str
    #: Bandwidth that it was smoothed with; None if it was not.
    bandwidth: float | None = None
    #: Whether it may give one action per row instead of a distribution.
    gives_actions: bool = False

    def __init__(self, problem: Problem, name: str) -> None:
        self.name = name
        self._ope = off_policy(problem.actions)

    def is_point(self, block: Block) -> bool:
        """Whether it gives one action per row instead of a distribution; judged by the first block of a log."""
        if not self.gives_actions or not hasattr(self._ope, "smoothed"):
            return False
        return not hasattr(self._answer(block, 0), "propensity")

    def smoothed(self, bandwidth: float) -> Self:
        """The same target, smoothed over nearby actions."""
        made = copy(self)
        made.bandwidth = bandwidth
        made._ope = cast(Any, self._ope).smoothed(bandwidth)
        return made

    def distribution(self, block: Block, first_row: int) -> Distribution:
        """The distribution over actions in each row."""
        answer = self._answer(block, first_row)
        return self._ope.distribution(answer, len(block), block.eligible, name=self.name, first_row=first_row)

    def _answer(self, block: Block, first_row: int) -> Any:
        raise NotImplementedError


class LoggedTarget(_CheckedTarget):
    """What was done: each row weighs one, and the value is the plain mean of rewards."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, "logged")

    def _answer(self, block: Block, first_row: int) -> Any:  # noqa: ARG002
        raise InvalidTarget("the log does not say how probable the other actions were; give the policy that decided")


class UniformTarget(_CheckedTarget):
    """Every eligible action with the same probability."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem, "uniform")

    def distribution(self, block: Block, first_row: int) -> Distribution:  # noqa: ARG002
        """The uniform distribution over what each row allows."""
        return self._ope.uniform(len(block), block.eligible)


class FixedActionTarget(_CheckedTarget):
    """The same action in every row; where it is not eligible, any that is."""

    gives_actions = True

    def __init__(self, problem: Problem, value: Any) -> None:
        try:
            parsed = problem.actions.parse(value)
        except InvalidAction as error:
            raise InvalidTarget(_no_target(value, error)) from None
        super().__init__(problem, str(parsed))
        self._action = problem.actions.encode([parsed])

    def _answer(self, block: Block, first_row: int) -> Any:  # noqa: ARG002
        return np.repeat(self._action, len(block), axis=0)


def _no_target(value: Any, error: InvalidAction) -> str:
    if isinstance(value, str):
        return f"{error}, and other targets are 'uniform' and 'logged'"
    return (
        f"a target is a policy, (teacher, state, key), an action, 'uniform', 'logged', a function or an array, got "
        f"{shown(value)}: {error}"
    )


class PolicyTarget(_CheckedTarget):
    """A policy."""

    def __init__(self, problem: Problem, policy: Policy) -> None:
        if policy.problem.hash != problem.hash:
            raise InvalidTarget(
                f"the policy decides {policy.problem.name!r} ({policy.problem.hash}), but the log is of "
                f"{problem.name!r} ({problem.hash}); their features or actions differ"
            )
        super().__init__(problem, f"policy {policy.version}")
        self.policy = policy

    def _answer(self, block: Block, first_row: int) -> Any:  # noqa: ARG002
        return self.policy.distribution(block.contexts, eligible=block.eligible)


class TeacherTarget(_CheckedTarget):
    """A fitted teacher: how probable it is under its posterior that each action is the best of the eligible ones."""

    def __init__(self, problem: Problem, teacher: AnyFiniteTeacher, state: Any, key: Key) -> None:
        finite(problem.actions, "a teacher as a target")
        super().__init__(problem, type(teacher).__name__)
        self._teacher, self._state, self._key = teacher, state, key

    def _answer(self, block: Block, first_row: int) -> Any:
        # Each block has a key of its own, as rows of different blocks would share their draws otherwise.
        key = self._key.child(first_row)
        from potstill.teachers import labels_masks

        if block.eligible is not None and labels_masks(self._teacher):
            return self._teacher.propensities(self._state, block.contexts, key, block.eligible)
        return np.asarray(self._teacher.propensities(self._state, block.contexts, key))


class FunctionTarget(_CheckedTarget):
    """A function of encoded contexts."""

    gives_actions = True

    def __init__(self, problem: Problem, function: TargetFunction) -> None:
        super().__init__(problem, getattr(function, "__name__", "function").strip("<>"))
        self._function = function

    def _answer(self, block: Block, first_row: int) -> Any:  # noqa: ARG002
        return self._function(block.contexts)


class ArrayTarget(_CheckedTarget):
    """Answers for all rows of the log: probabilities float[N, K] on a list of actions, or actions."""

    gives_actions = True

    def __init__(self, problem: Problem, rows: NDArray[Any]) -> None:
        counting = problem.actions.measure == "counting"
        super().__init__(problem, "probabilities" if counting and rows.dtype.kind == "f" else "actions")
        # The shape is checked now, and each row as it is used.
        self._ope.distribution(rows[:1], len(rows[:1]), None, name=self.name, first_row=0)
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def _answer(self, block: Block, first_row: int) -> Any:
        end = first_row + len(block)
        if end > len(self._rows):
            raise InvalidTarget(f"{self.name} have {len(self._rows)} rows, but the log has {end} or more")
        return self._rows[first_row:end]


class CustomTarget(_CheckedTarget):
    """A target of the caller's own class."""

    def __init__(self, problem: Problem, own: Target | ProbabilityTarget | ActionTarget) -> None:
        super().__init__(problem, own.name)
        self._own, self.policy = own, getattr(own, "policy", None)
        self.gives_actions = isinstance(own, ActionTarget)

    def is_point(self, block: Block) -> bool:
        """As its own class says, or by what it gives."""
        own = getattr(self._own, "is_point", None)
        return bool(own(block)) if own is not None else super().is_point(block)

    def smoothed(self, bandwidth: float) -> Self:
        """The same target, smoothed by its own class if that can."""
        made = super().smoothed(bandwidth)
        if hasattr(self._own, "smoothed"):
            made._own = self._own.smoothed(bandwidth)
        return made

    def _answer(self, block: Block, first_row: int) -> Any:
        if isinstance(self._own, Target):
            return self._own.distribution(block, first_row)
        if isinstance(self._own, ActionTarget):
            return self._own.actions(block, first_row)
        return np.asarray(self._own.probabilities(block, first_row))
