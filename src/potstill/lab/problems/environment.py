"""The contract of a simulated problem: contexts come in, actions earn rewards, and the truth is known."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from potstill.problem import Problem

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
#: Values by name, one NumPy array of length N each.
Columns = dict[str, NDArray[Any]]


class Environment(Protocol):
    """A world to decide in. It keeps no state: randomness comes from the generator that is handed in."""

    @property
    def problem(self) -> Problem:
        """What is decided."""

    def contexts(self, n: int, rng: np.random.Generator) -> Columns:
        """The contexts of a trial's n requests, in the order in which they come."""

    def encode(self, contexts: Columns) -> Float32:
        """What algorithms see of contexts, float32[N, d]. Columns may hold more: what only the truth depends on."""

    def means(self, contexts: Columns) -> Float64:
        """The expected reward of each action, float64[N, K]: its row maximum is the best possible."""

    def rewards(self, contexts: Columns, actions: NDArray[np.integer[Any]], rng: np.random.Generator) -> Float64:
        """What actions int[N] earn, float64[N].

        The chance in row i is the same whatever the action, so that algorithms which are handed equal generators are
        compared on equal luck.
        """


def regrets(means: Float64, actions: NDArray[np.integer[Any]]) -> Float64:
    """Expected reward given up by each action against the best one, float64[N]."""
    taken = np.take_along_axis(means, actions[:, None], axis=1)[:, 0]
    regret: Float64 = means.max(axis=1) - taken
    return regret
