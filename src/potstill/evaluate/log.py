"""A log: logged decisions with their rewards and propensities, read in blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from potstill.errors import InvalidLog
from potstill.problem import Contexts, Observations, Problem, check_outcomes, encode_actions, numbers, refuse_rows
from potstill.spaces import Actions, Allowed, FiniteSpace, off_policy

Float64 = NDArray[np.float64]


#: Reason by source of an observation, ``"unfit"``, or ``"outside"`` of the time asked for.
WHY = {
    "import-estimated": "imported without propensities, which were estimated from the log instead",
    "apprentice": "your code chose, and did not state the propensity of its choice",
    "log-only": "your code decided and stated no probability",
    "fallback": "no policy was available, and a fixed action was taken",
    "control": "the control's fixed action or rule decided, with probability 1",
    "design": "the initial design chose the action, with probability 1",
    "unfit": "do not fit the present problem: it has changed since",
}


@dataclass(frozen=True, eq=False)
class Block:
    """Consecutive rows of a log. The values are checked when the log is read.

    Attributes:
        contexts: Encoded contexts, float32[n, d].
        actions: Actions as the space encodes them, rows first; positions int32[n] for a list.
        rewards: Rewards, float64[n].
        propensities: Propensity of each action, float64[n]: a probability in (0, 1], or a density above 0 where the
            space has measure ``"lebesgue"``.
        eligible: What each row allowed, as the space encodes it, rows first; bool[n, K] for a list. None if every row
            allowed everything.
        times: Microseconds since 1970, int64[n]; None if they are not known.
        groups: Raw values of context features by name, strings or numbers [n], to evaluate segments by.
    """

    contexts: NDArray[np.float32]
    actions: Actions
    rewards: Float64
    propensities: Float64
    eligible: Allowed | None = None
    times: NDArray[np.int64] | None = None
    groups: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, column in self._columns():
            if len(column) != len(self):
                raise InvalidLog(f"{name} must have {len(self)} rows, as contexts has, got {len(column)}")

    def __len__(self) -> int:
        return len(self.contexts)

    def __getitem__(self, rows: slice) -> Block:
        """Some of the rows."""
        return Block(
            self.contexts[rows],
            self.actions[rows],
            self.rewards[rows],
            self.propensities[rows],
            None if self.eligible is None else self.eligible[rows],
            None if self.times is None else self.times[rows],
            {name: values[rows] for name, values in self.groups.items()},
        )

    def _columns(self) -> Iterator[tuple[str, NDArray[Any]]]:
        yield from (("actions", self.actions), ("rewards", self.rewards), ("propensities", self.propensities))
        yield from ((name, values) for name, values in self.groups.items())
        if self.eligible is not None:
            yield "eligible", self.eligible
        if self.times is not None:
            yield "times", self.times


class Log(Protocol):
    """Logged decisions of one problem. Its blocks can be read more than once, and are the same each time."""

    @property
    def problem(self) -> Problem:
        """The problem of the decisions."""

    def blocks(self) -> Iterator[Block]:
        """All rows in order, in blocks of any size."""


class ArrayLog:
    """A log in memory.

    Args:
        problem: The problem of the decisions.
        contexts: Rows, columns by name, or encoded float32[N, d].
        actions: Values, or an array of actions as the space encodes them; names or positions for a list.
        rewards: Rewards, float[N].
        propensities: Probability, or density, with which each action was taken, float[N].
        eligible: What each row allowed, as ``problem.actions.allow`` gives it, bool[N, K] for a list; everything if
            left out.
        times: Microseconds since 1970, int[N].
        groups: Values by name, to evaluate segments by.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        contexts: Contexts,
        actions: Sequence[Any] | Actions,
        rewards: ArrayLike,
        propensities: ArrayLike,
        eligible: Allowed | None = None,
        times: ArrayLike | None = None,
        groups: Mapping[str, Any] | None = None,
    ) -> None:
        self.problem = problem
        self._rows = Block(
            problem.encode_many(contexts),
            encode_actions(problem.actions, actions, InvalidLog),
            numbers("rewards", rewards, np.float64, InvalidLog),
            numbers("propensities", propensities, np.float64, InvalidLog),
            _allowed(problem, eligible),
            None if times is None else np.asarray(times, np.int64),
            {name: np.asarray(values) for name, values in (groups or {}).items()},
        )
        check(problem, self._rows, 0)

    @classmethod
    def of(cls, observations: Observations, **columns: Any) -> ArrayLog:
        """The log of observations; `columns` may add eligible, times and groups."""
        return cls(
            observations.problem,
            contexts=observations.contexts,
            actions=observations.actions,
            rewards=observations.rewards,
            propensities=observations.propensities,
            **columns,
        )

    def __len__(self) -> int:
        return len(self._rows)

    def blocks(self) -> Iterator[Block]:
        """All rows in order, in one block."""
        yield self._rows


def check(problem: Problem, block: Block, first_row: int) -> None:
    """Refuse a block that does not fit the problem; rows count from `first_row`."""
    _check_shape("contexts", block.contexts, (len(block), problem.width))
    totals = block.contexts.sum(axis=1, dtype=np.float64)
    refuse_rows(~np.isfinite(totals), "context", totals, "finite numbers; encode it again", InvalidLog, first_row)
    check_outcomes(problem, block.actions, block.rewards, block.propensities, InvalidLog, first_row)
    if block.eligible is not None:
        _check_eligible(problem, block, first_row)


def _check_eligible(problem: Problem, block: Block, first_row: int) -> None:
    taken = off_policy(problem.actions).permits(block.actions, block.eligible)
    if not taken.all():
        values = np.array(problem.actions.decode(block.actions), dtype=object)
        refuse_rows(~taken, "action", values, "eligible; correct the list or leave the row out", InvalidLog, first_row)


def _check_shape(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise InvalidLog(f"{name} must have shape {shape}, got {array.shape}; is this the log of another problem?")


def _allowed(problem: Problem, eligible: Allowed | None) -> Allowed | None:
    if eligible is None or not isinstance(problem.actions, FiniteSpace):
        return eligible
    return np.asarray(eligible, bool)
