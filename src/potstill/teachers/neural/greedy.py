"""Greedy and ε-greedy on the predictions of a network."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers import memory as memories
from potstill.teachers.contract import EXACT, Bool, Exactness, Float32, Parts
from potstill.teachers.memory import Memory
from potstill.teachers.neural import network
from potstill.teachers.neural import noise_selection as noises
from potstill.teachers.neural.base import Neural
from potstill.teachers.neural.network import Networks
from potstill.teachers.neural.noise_selection import Noise
from potstill.teachers.neural.parts import scan
from potstill.teachers.propensities import among, sample_rows, split_ties


class GreedyState(NamedTuple):
    """One network and its training data.

    Attributes:
        memory: The observations; empty if they are stored elsewhere and were read by `reread`.
        learnt: Number of observations it was trained on, int64[].
        networks: The network.
        noise: Noise share that it was trained with.
    """

    memory: Memory
    learnt: NDArray[np.int64]
    networks: Networks
    noise: Noise


class NeuralGreedy(Neural, frozen=True, kw_only=True, tag_field="type", tag="neural-greedy"):
    """The action with the highest predicted reward. It does not explore; ties are split evenly."""

    @property
    def exactness(self) -> Exactness:
        """Exact: propensities are deterministic."""
        return EXACT

    @property
    def passes(self) -> int:
        """Two: scan and training. 0 with a window, which is kept in memory."""
        return 2 if self.window is None else 0

    def init(self, problem: Problem) -> GreedyState:
        """A network that predicts 0 everywhere, so that all actions tie."""
        nothing, noise = memories.empty(problem.width), noises.initial(self.recipe.noise)
        return GreedyState(nothing, np.array(0), self._blank(problem), noise)

    def update(self, state: GreedyState, observations: Observations, key: Key) -> GreedyState:
        """The network after training with more observations."""
        if not len(observations):
            return state
        self._check_memory(state.memory, int(state.learnt))
        memory = self._append(state.memory, observations)
        units, previous, data = self._units(memory), int(state.learnt), memory.normalised()
        networks, noise = self._fit(state.networks, state.noise, previous, len(observations), data, units, key)
        return GreedyState(memory, np.array(len(memory.actions)), networks, noise)

    def reread(self, state: GreedyState, parts: Parts, key: Key) -> GreedyState:
        """The network after training on all observations, without keeping them."""
        overview = scan(parts, self.weighting)
        if not overview.rows.sum():
            return state
        networks, noise = self._fit_parts(state.networks, state.noise, int(state.learnt), parts, overview, key)
        return GreedyState(memories.empty(state.memory.contexts.shape[1]), overview.rows.sum(), networks, noise)

    def propensities(
        self,
        state: GreedyState,
        contexts: Float32,
        key: Key,  # noqa: ARG002
        eligible: Bool | None = None,
    ) -> Float32:
        """Probability 1 on the action with the highest predicted reward, float32[N, K]."""
        return split_ties(among(self.mean_rewards(state, contexts), eligible))

    def sample_actions(self, state: GreedyState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """Actions drawn from the propensities, int64[N, n]."""
        return sample_rows(self.propensities(state, contexts, key), n, key)

    def mean_rewards(self, state: GreedyState, contexts: Float32) -> network.Float64:
        """The predicted reward of each action, float64[N, K]."""
        return np.concatenate([state.networks.predict(contexts[rows])[0] for rows in network.chunks(len(contexts))])


class EpsilonGreedy(NeuralGreedy, frozen=True, kw_only=True, tag_field="type", tag="epsilon-greedy"):
    """The greedy action, or with probability `epsilon` a uniformly random action.

    Args:
        epsilon: Probability of a uniformly random action, which may be the greedy one.
    """

    epsilon: float = 0.05

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.epsilon <= 1:
            self._refuse("epsilon", "a probability from 0 to 1")

    def propensities(self, state: GreedyState, contexts: Float32, key: Key, eligible: Bool | None = None) -> Float32:
        """1 - epsilon on the greedy action, plus epsilon/K on each of the K eligible actions, float32[N, K]."""
        greedy = super().propensities(state, contexts, key, eligible)
        if eligible is None:
            return (1 - np.float32(self.epsilon)) * greedy + np.float32(self.epsilon / greedy.shape[1])
        even = eligible / eligible.sum(axis=1, keepdims=True)
        return np.asarray((1 - self.epsilon) * greedy + self.epsilon * even, np.float32)
