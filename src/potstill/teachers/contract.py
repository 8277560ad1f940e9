"""The contract that every teacher obeys: a posterior over rewards, as data and pure functions.

A teacher is a frozen configuration; what it has learnt is an explicit state (a pytree of arrays); randomness is an
explicit key. `check_teacher` tests a teacher, your own included, against this page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.spaces import Actions, ActionSpace, FiniteSpace, finite

Float32 = NDArray[np.float32]
StateT = TypeVar("StateT")
StatsT = TypeVar("StatsT", bound="Stats")
ResultT = TypeVar("ResultT")


class Exactness(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether propensities are computed exactly or estimated from draws, and then how well.

    Attributes:
        kind: ``exact`` means to float32.
        draws: Posterior draws per context.
        standard_error: The largest standard error that a propensity can have at that number of draws.
    """

    kind: Literal["exact", "sampled"]
    draws: int | None = None
    standard_error: float | None = None


EXACT = Exactness("exact")


class Teacher(Protocol[StateT]):
    """A posterior over reward functions."""

    def supports(self, space: ActionSpace) -> str | None:
        """Why this teacher cannot learn on an action space; None if it can."""

    @property
    def exactness(self) -> Exactness:
        """Whether labels are exact, or how many draws they are estimated from."""

    def init(self, problem: Problem) -> StateT:
        """The prior."""

    def update(self, state: StateT, observations: Observations, key: Key) -> StateT:
        """The posterior after more observations. Pure: `state` is left as it was, also when this fails."""

    def sample_actions(self, state: StateT, contexts: Float32, n: int, key: Key) -> Actions:
        """Thompson sampling's own actions, n for each context, each by a posterior sample of its own.

        As the action space encodes them: int64[N, n] for a list, [N, n, ...] for others.
        """


class FiniteTeacher(Teacher[StateT], Protocol):
    """A teacher on spaces whose actions can be listed, which also gives each action's probability of being best."""

    def propensities(self, state: StateT, contexts: Float32, key: Key) -> Float32:
        """The probability that each action is the best one under the posterior, float32[N, K], for float32[N, d]."""


class NeedsFiniteActions:
    """The mixin of teachers that keep something for each action of a list."""

    def supports(self, space: ActionSpace) -> str | None:
        """Finite spaces alone."""
        return None if isinstance(space, FiniteSpace) else "it needs a finite list of actions"

    def count(self, space: ActionSpace) -> int:
        """Number of actions."""
        return len(finite(space, type(self).__name__))


class Stats(Protocol):
    """What a teacher needs to know of a set of observations; adding two is the same as summarising both sets."""

    def __add__(self: StatsT, other: StatsT) -> StatsT: ...


@runtime_checkable
class Summarising(Protocol[StateT, StatsT]):
    """A teacher whose posterior is a sum over observations, so that shards can be summarised apart."""

    def summarise(self, observations: Observations) -> StatsT:
        """The statistics of some observations."""

    def absorb(self, state: StateT, stats: StatsT) -> StateT:
        """The posterior after the observations behind `stats`."""


class Parts(Protocol):
    """All observations, in parts that are read whenever they are wanted, here or on another machine."""

    def each(self, function: Callable[..., ResultT], *common: Any) -> Iterator[ResultT]:
        """``function(number, observations, *common)`` of each part, in their order.

        The function is at the top level of a module, and equal arguments give equal results.
        """


@runtime_checkable
class Rereading(Protocol[StateT]):
    """A teacher that reads all observations at every update, part by part.

    Its state need not keep them where they are stored anyway, and there may be more than memory holds.
    """

    @property
    def passes(self) -> int:
        """Number of passes over them; 0 if the state keeps a bounded number and no pass is needed."""

    def reread(self, state: StateT, parts: Parts, key: Key) -> StateT:
        """The posterior after all observations, those of earlier updates included; that of one `update` with them all.

        The state it is given may have been made either way; `update` refuses a state that this made.
        """


AnyTeacher = Teacher[Any]
AnyFiniteTeacher = FiniteTeacher[Any]
