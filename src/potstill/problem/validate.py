"""Whether actions, rewards and propensities fit a problem: the rule on single values and on NumPy arrays.

`potstill.tables.validate` states the whole rule as a table and has the same rule as Polars expressions. This half is a
module of its own because the policy and the event log run without Polars. The rule for the values of features is
`Problem.encode` itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from potstill.errors import InvalidAction, InvalidObservation, PotstillError
from potstill.spaces import Actions, ActionSpace, Continuous, FiniteSpace

#: Characters that names in logs and requests cannot have: JSON would have to escape them.
_NO_FIELD = re.compile(r'["\\\x00-\x1f]')

if TYPE_CHECKING:
    from potstill.problem.problem import Problem

#: Largest size of a reward: sums of squares of rewards must stay within float64.
LARGEST = 1e100
#: First microsecond of the year 2200; times are microseconds since 1970 and before this one.
YEAR_2200 = 7_258_118_400_000_000
#: The most metrics of a reward.
MOST_METRICS = 100
#: How far the probabilities of a row may be from adding up to one: float32 over many actions.
SUM_TOLERANCE = 1e-4
#: Rows that a message names after the first, and actions that it lists at most.
_NAMED, _LISTED = 5, 12

Bool = NDArray[np.bool_]


class Range(NamedTuple):
    """The numbers that fit.

    Attributes:
        low: Lower end.
        high: Upper end, included.
    """

    low: float
    high: float


def can_be_field(name: str) -> bool:
    """Whether a feature of this name can be a field of logged events and of requests."""
    return not _NO_FIELD.search(name)


def reward_range(problem: Problem) -> Range:
    """Rewards that fit, both ends included: the bounds of the problem, and at most `LARGEST` in size."""
    stated = problem.reward
    low = -LARGEST if stated.low is None else max(stated.low, -LARGEST)
    return Range(low, LARGEST if stated.high is None else min(stated.high, LARGEST))


def propensity_range(space: ActionSpace) -> Range:
    """Propensities that fit, the lower end excluded.

    Observations store propensities as float32. The ends are therefore the float64 numbers that round to a float32 above
    0, and to at most 1 for a probability or a finite float32 for a density.
    """
    return Range(2.0**-150, 1 + 2.0**-24 if space.measure == "counting" else float(np.finfo(np.float32).max))


def reward_must_be(problem: Problem) -> str:
    """What a reward must be, for messages."""
    low, high = reward_range(problem)
    if problem.reward.kind == "yes/no":
        return "0 or 1"
    return f"a {'whole ' if problem.reward.whole else ''}number from {low:g} to {high:g}"


def propensity_must_be(space: ActionSpace) -> str:
    """What a propensity must be, for messages."""
    return "a probability above 0 and at most 1" if space.measure == "counting" else "a density above 0"


def action_must_be(space: ActionSpace) -> str:
    """What an action must be, for messages: short lists are spelt out."""
    if isinstance(space, FiniteSpace) and len(space) <= _LISTED:
        return f"one of {', '.join(space.labels)}"
    if isinstance(space, Continuous):
        return f"a number from {space.low:g} to {space.high:g}"
    return f"an action of the problem, such as {space.examples[0]}"


def rewards_fit(problem: Problem, rewards: NDArray[np.float64]) -> Bool:
    """Which rewards fit, bool[N]; NaN does not."""
    low, high = reward_range(problem)
    fit: Bool = (rewards >= low) & (rewards <= high)
    return fit & (rewards == np.floor(rewards)) if problem.reward.whole else fit


def propensities_fit(space: ActionSpace, propensities: NDArray[np.floating[Any]]) -> Bool:
    """Which propensities fit, bool[N]; NaN does not."""
    low, high = propensity_range(space)
    fit: Bool = (propensities > low) & (propensities <= high)
    return fit


def encode_actions(
    space: ActionSpace, actions: Sequence[Any] | Actions, error: type[PotstillError] = InvalidObservation
) -> Actions:
    """Actions as the space encodes them, from values or from an array of the encoded form; rows that do not fit raise.

    Encoded actions are checked before they are narrowed to the type of the space, so that 2**32 does not become 0.
    """
    if isinstance(actions, np.ndarray) and actions.dtype.kind in "iuf":
        refuse_rows(~space.valid(actions), "action", actions, action_must_be(space), error)
        encoded = actions.astype(space.encode(list(space.examples)[:1]).dtype)
        # The float32 next to an end of the interval may lie outside of it: it fits by its own precision.
        return encoded.clip(space.low, space.high) if isinstance(space, Continuous) else encoded
    try:
        return space.encode(actions.tolist() if isinstance(actions, np.ndarray) else list(actions))
    except InvalidAction as invalid:
        raise error(str(invalid)) from None


def numbers(name: str, values: ArrayLike, dtype: Any, error: type[PotstillError] = InvalidObservation) -> NDArray[Any]:
    """Values as an array of floats; text is refused, even text that spells a number."""
    array = np.asarray(values)
    try:
        if array.dtype.kind in "US":
            raise ValueError(f"got text, such as {array.flat[0]!r}")
        with np.errstate(over="ignore"):  # what becomes infinite is refused with its row
            return array.astype(dtype, copy=False)
    except (TypeError, ValueError, OverflowError) as reason:
        raise error(f"{name} must be numbers: {reason}") from None


def check_outcomes(
    problem: Problem,
    actions: Actions,
    rewards: NDArray[np.float64],
    propensities: NDArray[np.floating[Any]],
    error: type[PotstillError] = InvalidObservation,
    first_row: int = 0,
) -> None:
    """Raise for the first rows whose action, reward or propensity does not fit; rows count from `first_row`."""
    space = problem.actions
    refuse_rows(~space.valid(actions), "action", actions, action_must_be(space), error, first_row)
    refuse_rows(~rewards_fit(problem, rewards), "reward", rewards, reward_must_be(problem), error, first_row)
    unfit = ~propensities_fit(space, propensities)
    refuse_rows(unfit, "propensity", propensities, propensity_must_be(space), error, first_row)


def refuse_rows(unfit: Bool, what: str, values: Any, must: str, error: type[PotstillError], first_row: int = 0) -> None:
    """Raise an error that names the first unfit row with its value, and the next few by number."""
    rows = np.flatnonzero(unfit)
    if not rows.size:
        return
    named = ", ".join(str(first_row + row) for row in rows[1 : 1 + _NAMED])
    more = ", …" if rows.size > 1 + _NAMED else ""
    others = f" (and {rows.size - 1} more: rows {named}{more})" if named else ""
    raise error(f"row {first_row + rows[0]}: {what} must be {must}, got {values[rows[0]]}{others}")
