"""Teachers that do not learn: uniform propensities, and propensities from a Python function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers.contract import EXACT, Bool, Exactness, Float32, NeedsFiniteActions
from potstill.teachers.propensities import sample_rows


class UniformState(NamedTuple):
    """State of `Uniform`: the number of actions, int64[]."""

    actions: NDArray[np.int64]


class Uniform(msgspec.Struct, NeedsFiniteActions, frozen=True, tag_field="type", tag="uniform"):
    """Uniform propensities 1/K, independent of observations. The baseline, and a policy for pure exploration."""

    @property
    def exactness(self) -> Exactness:
        """Exact."""
        return EXACT

    def init(self, problem: Problem) -> UniformState:
        """The prior, which is also the posterior."""
        return UniformState(np.array(self.count(problem.actions)))

    def update(self, state: UniformState, observations: Observations, key: Key) -> UniformState:  # noqa: ARG002
        """The same state."""
        return state

    def propensities(
        self,
        state: UniformState,
        contexts: Float32,
        key: Key,  # noqa: ARG002
        eligible: Bool | None = None,
    ) -> Float32:
        """1/K everywhere, float32[N, K]; K counts the eligible actions."""
        if eligible is None:
            return np.full((len(contexts), int(state.actions)), 1 / int(state.actions), np.float32)
        return np.asarray(eligible / eligible.sum(axis=1, keepdims=True), np.float32)

    def sample_actions(self, state: UniformState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """Uniformly random actions, int64[N, n]."""
        return key.generator().integers(int(state.actions), size=(len(contexts), n))


@dataclass(frozen=True, repr=False)
class FunctionTeacher(NeedsFiniteActions):
    """A fixed rule, written as a Python function. It does not learn.

    Args:
        function: Maps encoded contexts float32[N, d] to probabilities [N, K].
    """

    function: Callable[[Float32], NDArray[Any]]

    @property
    def exactness(self) -> Exactness:
        """Exact: the function gives the propensities themselves."""
        return EXACT

    def init(self, problem: Problem) -> tuple[NDArray[np.int64]]:
        """Number of actions."""
        return (np.array(self.count(problem.actions)),)

    def update(self, state: Any, observations: Observations, key: Key) -> Any:  # noqa: ARG002
        """The same state."""
        return state

    def propensities(self, state: Any, contexts: Float32, key: Key) -> Float32:  # noqa: ARG002
        """The function's probabilities, validated, float32[N, K]."""
        p = np.asarray(self.function(contexts), np.float32)
        expected = (len(contexts), int(state[0]))
        if p.shape != expected:
            raise InvalidOption(f"{self._name} must return probabilities of shape {expected}, got {p.shape}")
        bad = np.flatnonzero((p < 0).any(axis=1) | ~(np.abs(p.sum(axis=1) - 1) < 1e-4))
        if bad.size:
            raise InvalidOption(
                f"{self._name} must return probabilities that sum to 1; row {bad[0]} is {p[bad[0]].tolist()}"
            )
        return p

    def sample_actions(self, state: Any, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """Actions drawn from those probabilities, int64[N, n]."""
        return sample_rows(self.propensities(state, contexts, key), n, key)

    def __repr__(self) -> str:
        # Without the memory address: this goes into policy files, which are equal for equal runs.
        return f"FunctionTeacher({self._name})"

    @property
    def _name(self) -> str:
        return getattr(self.function, "__qualname__", type(self.function).__qualname__)
