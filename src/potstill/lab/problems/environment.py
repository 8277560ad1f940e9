"""The contract of a simulated problem with known expected rewards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from potstill.errors import LabError
from potstill.keys import Key
from potstill.problem import Observations, Problem

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
#: Values by name, one NumPy array of length N each.
Columns = dict[str, NDArray[Any]]


#: The actions taken, as the space encodes them (positions int64[N] for a list), and the probability, or density, of
#: each, float[N].
Choices = tuple[NDArray[Any], NDArray[Any]]
#: Decides on encoded contexts, float32[N, d].
Choose = Callable[[Float32], Choices]


class Environment(Protocol):
    """A simulated problem. Stateless: randomness comes from the given generator."""

    @property
    def problem(self) -> Problem:
        """The problem."""

    def contexts(self, n: int, rng: np.random.Generator) -> Columns:
        """Contexts of the n requests of a trial, in order."""

    def encode(self, contexts: Columns) -> Float32:
        """Encoded contexts, float32[N, d]. Columns may hold further values that only the rewards depend on."""

    def means(self, contexts: Columns) -> Float64:
        """Expected reward of each action, float64[N, K]; the row maximum is the best possible."""

    def rewards(self, contexts: Columns, actions: NDArray[np.integer[Any]], rng: np.random.Generator) -> Float64:
        """Rewards float64[N] of actions int[N].

        Row i consumes the same randomness for every action, so that algorithms with equal generators get the same
        reward noise.
        """


def regrets(means: Float64, actions: NDArray[np.integer[Any]]) -> Float64:
    """Regret of each action: expected reward below that of the best one, float64[N]."""
    taken = np.take_along_axis(means, actions[:, None], axis=1)[:, 0]
    regret: Float64 = means.max(axis=1) - taken
    return regret


@runtime_checkable
class NumberEnvironment(Protocol):
    """A simulated problem whose action is a number: it has regrets instead of the expected rewards of all actions."""

    def regrets(self, contexts: Columns, actions: NDArray[Any]) -> Float64:
        """Expected reward below that of the best action, float64[N]."""


class Batch(NamedTuple):
    """Result of one batch of decisions.

    Attributes:
        observations: Observations to learn from.
        regret: Total expected reward lost in the batch; None where expected rewards are unknown.
    """

    observations: Observations
    regret: float | None


class World(Protocol):
    """Requests of one trial. Worlds with equal keys have equal requests and reward noise."""

    @property
    def problem(self) -> Problem:
        """The problem."""

    def batch(self, size: int, choose: Choose) -> Batch:
        """The next `size` decisions."""


class Simulation:
    """A world with known expected rewards: an environment, and the requests of one trial in order.

    Args:
        environment: The environment: an `Environment`, or a `NumberEnvironment` with contexts and rewards.
        decisions: Number of decisions in the trial.
        key: Key of contexts and reward noise.
    """

    def __init__(self, environment: Any, decisions: int, key: Key) -> None:
        self.environment, self.key = environment, key
        self._contexts = environment.contexts(decisions, key.child("contexts").generator())
        self._encoded = environment.encode(self._contexts)
        self._at = 0

    @property
    def problem(self) -> Problem:
        """The problem of the environment."""
        problem: Problem = self.environment.problem
        return problem

    def batch(self, size: int, choose: Choose) -> Batch:
        """Decide on the next `size` requests."""
        rows = slice(self._at, self._at + size)
        contexts, encoded = _rows(self._contexts, rows), self._encoded[rows]
        if len(encoded) < size:
            raise LabError(f"asked for {size} decisions, but this trial has only {len(encoded)} left")
        actions, propensities = choose(encoded)
        noise = self.key.child("rewards", self._at).generator()
        rewards = self.environment.rewards(contexts, actions, noise)
        self._at += size
        observations = Observations.from_columns(
            self.problem, contexts=encoded, actions=actions, rewards=rewards, propensities=propensities
        )
        return Batch(observations, float(self._regrets(contexts, actions).sum()))

    def _regrets(self, contexts: Columns, actions: NDArray[Any]) -> Float64:
        if isinstance(self.environment, NumberEnvironment):
            return self.environment.regrets(contexts, actions)
        return regrets(self.environment.means(contexts), actions)


def _rows(columns: Columns, rows: slice) -> dict[str, NDArray[Any]]:
    return {name: column[rows] for name, column in columns.items()}
