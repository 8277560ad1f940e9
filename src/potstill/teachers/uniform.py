"""No opinion: the teacher of a random policy."""

from __future__ import annotations

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers.contract import EXACT, Exactness, Float32


class UniformState(NamedTuple):
    """How many actions there are: int64[]."""

    actions: NDArray[np.int64]


class Uniform(msgspec.Struct, frozen=True, tag_field="type", tag="uniform"):
    """Every action is best with equal probability, whatever is observed."""

    @property
    def exactness(self) -> Exactness:
        """Exact."""
        return EXACT

    def init(self, problem: Problem) -> UniformState:
        """The prior, which is also the posterior."""
        return UniformState(np.array(len(problem.actions)))

    def update(self, state: UniformState, observations: Observations, key: Key) -> UniformState:  # noqa: ARG002
        """The same state."""
        return state

    def propensities(self, state: UniformState, contexts: Float32, key: Key) -> Float32:  # noqa: ARG002
        """1/K everywhere, float32[N, K]."""
        return np.full((len(contexts), int(state.actions)), 1 / int(state.actions), np.float32)

    def sample_actions(self, state: UniformState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """Actions at random, int64[N, n]."""
        return key.generator().integers(int(state.actions), size=(len(contexts), n))
