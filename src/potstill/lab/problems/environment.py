"""The contract of a simulated problem with known expected rewards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from potstill.errors import LabError
from potstill.keys import Key
from potstill.problem import Observations, Problem

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
#: Values by name, one NumPy array of length N each.
Columns = dict[str, NDArray[Any]]


#: Positions of the actions taken, int64[N], and the probability of each, float32[N].
Choices = tuple[NDArray[np.int64], Float32]
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
        environment: The environment.
        decisions: Number of decisions in the trial.
        key: Key of contexts and reward noise.
    """

    def __init__(self, environment: Environment, decisions: int, key: Key) -> None:
        self.environment, self.key = environment, key
        self._contexts = environment.contexts(decisions, key.child("contexts").generator())
        self._encoded = environment.encode(self._contexts)
        self._at = 0

    @property
    def problem(self) -> Problem:
        """The problem of the environment."""
        return self.environment.problem

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
        observations = Observations(self.problem, encoded, actions.astype(np.int32), rewards, propensities)
        return Batch(observations, float(regrets(self.environment.means(contexts), actions).sum()))


def _rows(columns: Columns, rows: slice) -> dict[str, NDArray[Any]]:
    return {name: column[rows] for name, column in columns.items()}
