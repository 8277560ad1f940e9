"""Greedy on a network's predictions: baselines, and something to distil."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers import memory as memories
from potstill.teachers.contract import EXACT, Exactness, Float32, Parts
from potstill.teachers.memory import Memory
from potstill.teachers.neural import network
from potstill.teachers.neural import noise_selection as noises
from potstill.teachers.neural import parts as reading
from potstill.teachers.neural.base import Neural
from potstill.teachers.neural.network import Networks
from potstill.teachers.neural.noise_selection import Noise
from potstill.teachers.propensities import sample_rows, split_ties


class GreedyState(NamedTuple):
    """One network, and what it was trained on.

    Attributes:
        memory: The observations; none if they are kept elsewhere, and were read from there.
        learnt: How many observations it was trained on, int64[].
        networks: The network.
        noise: Noise that it was trained with.
    """

    memory: Memory
    learnt: NDArray[np.int64]
    networks: Networks
    noise: Noise


class NeuralGreedy(Neural, frozen=True, kw_only=True, tag_field="type", tag="neural-greedy"):
    """The action with the highest reward that a network predicts. It explores nothing; ties are split evenly."""

    @property
    def exactness(self) -> Exactness:
        """Exact: there is nothing to integrate."""
        return EXACT

    @property
    def passes(self) -> int:
        """To look over, and to train the network; a window is kept in memory."""
        return 2 if self.window is None else 0

    def init(self, problem: Problem) -> GreedyState:
        """A network that predicts 0 everywhere, so that all actions tie."""
        nothing, noise = memories.empty(problem.width), noises.given(self.recipe.noise)
        return GreedyState(nothing, np.array(0), self._blank(problem), noise)

    def update(self, state: GreedyState, observations: Observations, key: Key) -> GreedyState:
        """The network trained on, with more observations."""
        if not len(observations):
            return state
        self._check_kept(state.memory, int(state.learnt))
        memory = self._remember(state.memory, observations)
        units, learnt = self._units(memory), int(state.learnt)
        networks, noise = self._fitted(state.networks, state.noise, learnt, len(observations), memory, units, key)
        return GreedyState(memory, np.array(len(memory.actions)), networks, noise)

    def reread(self, state: GreedyState, parts: Parts, key: Key) -> GreedyState:
        """The same with all observations, which stay where they are."""
        seen = reading.overview(parts)
        if not seen.rows.sum():
            return state
        networks, noise = self._fitted_in_parts(state.networks, state.noise, int(state.learnt), parts, seen, key)
        return GreedyState(memories.empty(state.memory.contexts.shape[1]), seen.rows.sum(), networks, noise)

    def propensities(self, state: GreedyState, contexts: Float32, key: Key) -> Float32:  # noqa: ARG002
        """1 on the best predicted action, float32[N, K]."""
        return split_ties(self.predict(state, contexts))

    def sample_actions(self, state: GreedyState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """Actions drawn from the propensities, int64[N, n]."""
        return sample_rows(self.propensities(state, contexts, key), n, key)

    def predict(self, state: GreedyState, contexts: Float32) -> network.Float64:
        """The reward of each action, float64[N, K]."""
        return np.concatenate([state.networks.predict(contexts[rows])[0] for rows in network.chunks(len(contexts))])


class EpsilonGreedy(NeuralGreedy, frozen=True, kw_only=True, tag_field="type", tag="epsilon-greedy"):
    """The greedy action, and with probability `epsilon` any action at random.

    Args:
        epsilon: The probability of an action at random, the greedy one included.
    """

    epsilon: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.epsilon <= 1:
            self._refuse("epsilon", "a probability")

    def propensities(self, state: GreedyState, contexts: Float32, key: Key) -> Float32:
        """1 - epsilon on the best predicted action, and epsilon/K on every one, float32[N, K]."""
        greedy = super().propensities(state, contexts, key)
        return (1 - np.float32(self.epsilon)) * greedy + np.float32(self.epsilon / greedy.shape[1])
