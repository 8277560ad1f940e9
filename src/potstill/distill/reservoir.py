"""The reservoir of a still: a sample of observed contexts to imitate on, and totals of observations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.problem import InvalidObservation, Observations, Problem, Reward
from potstill.teachers import Summarising

#: Observed contexts that are kept to imitate on: enough for the student, little enough for any machine.
CONTEXTS_KEPT = 100_000


class Seen(NamedTuple):
    """Sums and samples over all observations so far.

    Attributes:
        contexts: A uniform sample of those observed, in order, float32[N, d]; all of them while they are few.
        ranks: A random number for each; those of the smallest are kept, float64[N].
        rewards: The smallest and the largest, float64[2].
        observations: How many there were, int64[].
    """

    contexts: NDArray[np.float32]
    ranks: NDArray[np.float64]
    rewards: NDArray[np.float64]
    observations: NDArray[np.int64]

    @classmethod
    def nothing(cls, problem: Problem) -> Seen:
        """Before the first observation."""
        none = np.zeros((0, problem.width), np.float32)
        return cls(none, np.zeros(0), np.array([np.inf, -np.inf]), np.array(0, np.int64))

    @classmethod
    def of(cls, observations: Observations, key: Key) -> Seen:
        """Some observations by themselves."""
        ranks, rewards = key.generator().random(len(observations)), observations.rewards
        contexts, ranks = _lowest(observations.contexts, ranks)
        extremes = np.array([rewards.min(initial=np.inf), rewards.max(initial=-np.inf)])
        return cls(contexts, ranks, extremes, np.array(len(observations), np.int64))

    def then(self, later: Seen) -> Seen:
        """With what was seen later."""
        contexts = np.concatenate([self.contexts, later.contexts])
        ranks = np.concatenate([self.ranks, later.ranks])
        low, high = min(self.rewards[0], later.rewards[0]), max(self.rewards[1], later.rewards[1])
        return Seen(*_lowest(contexts, ranks), np.array([low, high]), self.observations + later.observations)

    def spread(self, reward: Reward) -> float:
        """The largest difference between two rewards: as the problem says, or as seen so far."""
        low = self.rewards[0] if reward.low is None else reward.low
        high = self.rewards[1] if reward.high is None else reward.high
        return max(float(high - low), 0.0)


def declared_range(reward: Reward) -> float | None:
    """The largest less the smallest reward, as the problem declares them; None if it leaves one open."""
    return None if reward.low is None or reward.high is None else float(reward.high - reward.low)


class Part(Protocol):
    """Observations that are yet to be read."""

    def read(self) -> Observations:
        """The observations."""


def observations_of(part: Observations | Part, problem: Problem) -> Observations:
    """The observations of a part, which must be of the problem."""
    found = part.read() if hasattr(part, "read") else part
    if not isinstance(found, Observations):
        raise InvalidObservation(
            f"update takes Observations, got {type(found).__name__}: see Observations.from_records"
        )
    if found.problem.hash != problem.hash:
        raise InvalidObservation(
            f"observations of problem {found.problem.name!r} ({found.problem.hash}), "
            f"but this still is for {problem.name!r} ({problem.hash})"
        )
    return found


def summarised(
    numbered: tuple[int, Observations | Part], teacher: Summarising[Any, Any], problem: Problem, key: Key
) -> tuple[Seen, Any]:
    """What a still and its teacher need to know of a part; two parts can be looked at apart, and added in order."""
    number, part = numbered
    observations = observations_of(part, problem)
    return Seen.of(observations, key.child("keep", number)), teacher.summarise(observations)


def seen_in(numbered: tuple[int, Observations | Part], problem: Problem, key: Key) -> Seen:
    """What a still needs to know of a part."""
    number, part = numbered
    return Seen.of(observations_of(part, problem), key.child("keep", number))


class ReadParts:
    """Parts that a teacher goes over, as often as it likes.

    Attributes:
        rows: Observations of all parts, once a teacher has gone over them.

    Args:
        parts: Parts of all observations.
        problem: Problem that they must be of.
        each: Maps functions over them.
        told: Called with the number of observations read so far, counting each pass.
    """

    def __init__(
        self,
        parts: Sequence[Observations | Part],
        problem: Problem,
        each: Callable[..., Iterator[Any]],
        told: Callable[[int], None] | None = None,
    ) -> None:
        self._parts, self._problem, self._each, self._told = parts, problem, each, told
        self.rows, self._read = 0, 0

    def each(self, function: Callable[..., Any], *common: Any) -> Iterator[Any]:
        """``function(number, observations, *common)`` of each part, in order."""
        self.rows = 0
        for rows, found in self._each(_read, enumerate(self._parts), function, self._problem, *common):
            self.rows += rows
            if self._told is not None:
                self._told(self._read + self.rows)
            yield found
        self._read += self.rows


def _read(
    numbered: tuple[int, Observations | Part], function: Callable[..., Any], problem: Problem, *common: Any
) -> tuple[int, Any]:
    number, part = numbered
    observations = observations_of(part, problem)
    return len(observations), function(number, observations, *common)


def _lowest(contexts: NDArray[np.float32], ranks: NDArray[np.float64]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Those of the smallest ranks, in order."""
    if len(contexts) <= CONTEXTS_KEPT:
        return contexts, ranks
    kept = np.sort(np.argpartition(ranks, CONTEXTS_KEPT)[:CONTEXTS_KEPT])
    return contexts[kept], ranks[kept]
