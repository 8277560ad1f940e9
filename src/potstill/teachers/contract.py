"""The teacher contract: a posterior over rewards, as data and pure functions.

A teacher is a frozen configuration. The posterior is an explicit state, a pytree of arrays. Randomness is an explicit
key. `check_teacher` tests any teacher, your own included, against this contract.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Protocol, TypeGuard, TypeVar, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.problem import Observations, Problem, RewardKind
from potstill.spaces import Actions, ActionSpace, FiniteSpace, finite

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]
StateT = TypeVar("StateT")
StatsT = TypeVar("StatsT", bound="Stats")
ResultT = TypeVar("ResultT")


class Exactness(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether propensities are exact or estimated from posterior draws, and with what error.

    Attributes:
        kind: ``exact`` means exact to float32; ``sampled`` means estimated from draws.
        draws: Number of posterior draws per context.
        standard_error: Largest standard error of a propensity at that number of draws.
        shared_by: Number of contexts that share the same draws, and with them their errors.
        distinct: Number of distinct draws that all contexts share; None if there is no limit.
    """

    kind: Literal["exact", "sampled"]
    draws: int | None = None
    standard_error: float | None = None
    shared_by: int = 1
    distinct: int | None = None

    def mean_standard_error(self, contexts: int) -> float:
        """Largest standard error of an action's mean propensity over a number of contexts; 0 if exact.

        Errors of contexts with draws of their own average out. Those of contexts that share draws need not.
        """
        if self.draws is None or not contexts:
            return 0.0
        drawn = self.draws * math.ceil(contexts / self.shared_by)
        return 0.5 / math.sqrt(drawn if self.distinct is None else min(drawn, self.distinct))


EXACT = Exactness("exact")


class Teacher(Protocol[StateT]):
    """A posterior over reward functions.

    A teacher whose states have changed their meaning has an attribute `state_format`, a number above 1, so that earlier
    states are refused.
    """

    def supports(self, space: ActionSpace) -> str | None:
        """Return the reason why this teacher cannot learn on an action space, or None if it can."""

    @property
    def exactness(self) -> Exactness:
        """Whether propensities are exact, or the number of draws they are estimated from."""

    def init(self, problem: Problem) -> StateT:
        """The prior."""

    def update(self, state: StateT, observations: Observations, key: Key) -> StateT:
        """The posterior after more observations. Pure: `state` is never modified, even on failure."""

    def sample_actions(self, state: StateT, contexts: Float32, n: int, key: Key) -> Actions:
        """Thompson-sampled actions: n per context, each from an independent posterior sample.

        Encoded by the action space: int64[N, n] for a finite list, [N, n, ...] for others.
        """


class FiniteTeacher(Teacher[StateT], Protocol):
    """A teacher on finite action spaces, which also gives each action's probability of being the best."""

    def propensities(self, state: StateT, contexts: Float32, key: Key) -> Float32:
        """The posterior probability that each action is the best, float32[N, K], for contexts float32[N, d]."""


class MaskedTeacher(FiniteTeacher[StateT], Protocol):
    """A teacher that also gives each action's probability of being the best of some eligible ones.

    `Student(masked=True)` needs one; `labels_masks` tells. All finite teachers of this package are such, except
    `FunctionTeacher`.
    """

    def propensities(self, state: StateT, contexts: Float32, key: Key, eligible: Bool | None = None) -> Float32:
        """The same; with `eligible`, bool[N, K], of the best among each row's eligible actions, and 0 for others.

        This is no renormalisation: an action that seldom is the best of all may often be the best of a few.
        """


class ContinuousTeacher(Teacher[StateT], Protocol):
    """A teacher on `Continuous`, which also gives the distribution of the best action over bins.

    `sample_actions` gives float64[N, n]: each is the maximiser over the whole interval of one independent posterior
    draw of the expected reward.
    """

    def propensities(self, state: StateT, contexts: Float32, key: Key) -> Float32:
        """The posterior probability that the best action is in each bin, float32[N, bins], for float32[N, d]."""

    def mean_rewards(self, state: StateT, contexts: Float32) -> Float64:
        """The posterior mean reward at the middle of each bin, float64[N, bins]."""


@runtime_checkable
class MeanRewards(Protocol):
    """A teacher that gives the posterior mean of rewards, by which imitation is judged."""

    def mean_rewards(self, state: Any, contexts: Float32) -> Float64:
        """The posterior mean reward of each action, or at the middle of each bin, float64[N, K]."""


@runtime_checkable
class Informative(Protocol):
    """A teacher that measures how much observations tell about rewards."""

    def information_gain(self, state: Any, new: int) -> float:
        """Mutual information, in nats, between rewards and the latest `new` observations, given the earlier ones."""


@runtime_checkable
class Selecting(Protocol):
    """A teacher that weighs candidates, and says how."""

    def selection(self, state: Any) -> dict[str, dict[str, float]]:
        """What is known of each candidate, by name: its ``weight`` and the figures behind it."""


@runtime_checkable
class ItemEffects(Protocol):
    """A teacher of a catalogue that knows each item by its features and an effect of its own.

    A student of two towers imitates it, so that new items have propensities at once.
    """

    def item_effects(self, state: Any) -> Float32:
        """Posterior mean and standard deviation of each item's effect, in units of a new item's, float32[K, 2].

        A new item has 0 and 1.
        """


def has_informed_prior(teacher: Teacher[Any]) -> bool:
    """Whether a teacher's prior prefers actions, so that its first policy imitates the prior; if not, it is uniform.

    The teacher says so by an attribute `informed`; without it, the prior treats all actions alike.
    """
    return bool(getattr(teacher, "informed", False))


def has_sharp_labels(teacher: Teacher[Any]) -> bool:
    """Whether a teacher's propensities have steps, as those of trees: a student then needs more contexts to follow.

    The teacher says so by an attribute `sharp`; without it, they are taken to be smooth in the context.
    """
    return bool(getattr(teacher, "sharp", False))


def labels_masks(teacher: Teacher[Any]) -> TypeGuard[MaskedTeacher[Any]]:
    """Whether a teacher gives propensities among eligible actions: its `propensities` has a parameter `eligible`."""
    method = getattr(teacher, "propensities", None)
    return method is not None and "eligible" in inspect.signature(method).parameters


def reward_kinds(teacher: Teacher[Any]) -> tuple[RewardKind, ...]:
    """Kinds of reward that a teacher learns from, the best first; empty if it learns from all.

    The teacher says so by an attribute `reward_kinds`. It refuses other rewards in an update.
    """
    return tuple(getattr(teacher, "reward_kinds", ()))


class NeedsFiniteActions:
    """Mixin for teachers that need a finite list of actions."""

    def supports(self, space: ActionSpace) -> str | None:
        """None for a finite space; otherwise the reason."""
        return None if isinstance(space, FiniteSpace) else "it needs a finite list of actions"

    def count(self, space: ActionSpace) -> int:
        """Number of actions."""
        return len(finite(space, type(self).__name__))


@runtime_checkable
class PerAction(Protocol):
    """A teacher whose state keeps statistics of each action, so that the list of actions may change under it."""

    def with_actions(self, state: Any, before: Problem, after: Problem, like: Mapping[str, str]) -> Any:
        """The state for another list of actions; features are the same.

        Actions of both lists keep what was learnt of them. Others start at their prior; those that are keys of `like`
        as the action that is the value, with each of its observations worth `LIKE` of one.

        Raises:
            ValueError: This state does not keep its actions apart, or actions begin otherwise than by `like`; the
                message says why.
        """


#: Weight of the observations that a new action takes over from the one that it is like: the same mean, far wider.
LIKE = 0.1


class Stats(Protocol):
    """Sufficient statistics of a set of observations; the sum of two equals the statistics of both sets."""

    def __add__(self: StatsT, other: StatsT) -> StatsT: ...


@runtime_checkable
class Summarising(Protocol[StateT, StatsT]):
    """A teacher with additive sufficient statistics, so that shards can be summarised in parallel."""

    def summarise(self, observations: Observations) -> StatsT:
        """The sufficient statistics of some observations."""

    def absorb(self, state: StateT, stats: StatsT) -> StateT:
        """The posterior after the observations behind `stats`."""


class Parts(Protocol):
    """All observations in parts, which are read on demand, locally or on another machine."""

    def each(self, function: Callable[..., ResultT], *common: Any) -> Iterator[ResultT]:
        """Yield ``function(number, observations, *common)`` for each part, in order.

        The function must be deterministic and defined at the top level of a module.
        """


@runtime_checkable
class Rereading(Protocol[StateT]):
    """A teacher that reads all observations at every update, part by part.

    Observations that are stored elsewhere need not be in the state, and may exceed memory.
    """

    @property
    def passes(self) -> int:
        """Number of passes over the observations; 0 if the state keeps a bounded number and needs no pass."""

    def reread(self, state: StateT, parts: Parts, key: Key) -> StateT:
        """The posterior after all observations, including those of earlier updates: equal to one `update` with all.

        `state` may come from `update` or from `reread`. `update` refuses a state that `reread` made.
        """


AnyTeacher = Teacher[Any]
AnyFiniteTeacher = FiniteTeacher[Any]
AnyContinuousTeacher = ContinuousTeacher[Any]
