"""Bootstrap-TS: votes of an ensemble of networks, each trained on its own bootstrap sample."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers import memory as memories
from potstill.teachers.contract import EXACT, Bool, Exactness, Float32
from potstill.teachers.memory import Memory
from potstill.teachers.neural import network
from potstill.teachers.neural import noise_selection as noises
from potstill.teachers.neural.base import Neural
from potstill.teachers.neural.network import Data, Networks, Units
from potstill.teachers.neural.noise_selection import Noise
from potstill.teachers.propensities import among, part_of, sample_rows, split_ties

Float64 = NDArray[np.float64]


class BootstrapState(NamedTuple):
    """The ensemble and its training data.

    Attributes:
        memory: The observations.
        counts: Multiplicity of each observation in each network's bootstrap sample, uint8[N, B]. Drawn once and kept
            for all updates: warm-started networks with new draws at every update would converge to agreement.
        networks: The B networks.
        noise: Noise share that they were trained with.
        priors: B fixed random networks that are added to their predictions, in units of rewards.
    """

    memory: Memory
    counts: NDArray[np.uint8]
    networks: Networks
    noise: Noise
    priors: Networks


class BootstrapTS(Neural, frozen=True, kw_only=True, tag_field="type", tag="bootstrap-ts"):
    """An ensemble of networks, each trained on a bootstrap sample. A posterior draw is one network at random.

    Propensities are exact vote shares: the share of networks that predict the highest reward for an action, with ties
    split evenly. Without smoothing they are multiples of 1/networks. With `smoothing` they are
    (votes + smoothing) / (networks + K·smoothing), the mean of a Dirichlet posterior over the best action.

    Args:
        networks: Number of networks.
        bootstrap: Whether each network counts each observation Poisson(1) times. The paper uses no bootstrap: every
            network learns from all observations, and networks differ by initialisation and minibatches.
        prior_scale: Scale of random prior functions (Osband, Aslanides, Cassirer 2018), in standard deviations of the
            rewards of the first batch. 0 disables them.
        smoothing: Pseudo-votes for each action. 0 disables smoothing.
    """

    networks: int = 10
    bootstrap: bool = True
    prior_scale: float = 0.0
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.networks < 1:
            self._refuse("networks", "1 or more")
        for field in ("prior_scale", "smoothing"):
            if not 0 <= getattr(self, field) < np.inf:
                self._refuse(field, "0 or more")

    @property
    def exactness(self) -> Exactness:
        """Exact: votes are counted."""
        return EXACT

    def init(self, problem: Problem) -> BootstrapState:
        """Networks that predict 0 everywhere, so that all actions tie."""
        blank = self._blank(problem, self.networks)
        nothing, counts = memories.empty(problem.width), np.zeros((0, self.networks), np.uint8)
        return BootstrapState(nothing, counts, blank, noises.initial(self.recipe.noise), blank)

    def update(self, state: BootstrapState, observations: Observations, key: Key) -> BootstrapState:
        """The ensemble after training with more observations."""
        from potstill.teachers.neural import train

        if not len(observations):
            return state
        memory, previous = self._append(state.memory, observations), len(state.memory.actions)
        counts = np.concatenate([state.counts, self._draw_counts(len(observations), key.child("bootstrap"))])
        counts, units = counts[-len(memory.actions) :], self._units(memory)
        priors = self._draw_priors(state.priors, units, key.child("prior")) if not previous else state.priors
        plain, new = self._data(memory.normalised(), units), len(observations)
        start, noise = self._prepare(state.networks, state.noise, previous, new, plain, units, key)
        left_over = units.standardise(memory.rewards - self._prior_rewards(priors, memory))
        data = Data(memory.contexts, memory.actions, left_over, counts.T * plain.weights)
        networks = train.fit(start, data, self.recipe, key.child("train")).in_units(units)
        return BootstrapState(memory, counts, networks, noise, priors)

    def propensities(
        self,
        state: BootstrapState,
        contexts: Float32,
        key: Key,  # noqa: ARG002
        eligible: Bool | None = None,
    ) -> Float32:
        """The vote share of each action, with smoothing if configured, float32[N, K]."""
        votes = np.concatenate(
            [
                self._votes(state, contexts[rows], part_of(eligible, rows))
                for rows in network.chunks(len(contexts), self.networks)
            ]
        )
        allowed = np.ones_like(votes) if eligible is None else eligible.astype(np.float64)
        total = self.networks + self.smoothing * allowed.sum(axis=1, keepdims=True)
        smoothed: Float32 = ((votes + self.smoothing * allowed) / total).astype(np.float32)
        return smoothed

    def sample_actions(self, state: BootstrapState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """Actions drawn from the (smoothed) votes, int64[N, n]: each is the choice of one random network."""
        return sample_rows(self.propensities(state, contexts, key), n, key)

    def predict(self, state: BootstrapState, contexts: Float32) -> Float64:
        """The reward of each action predicted by each network plus its prior, float64[B, N, K]."""
        predicted = state.networks.predict(contexts)
        return predicted + state.priors.predict(contexts) if self.prior_scale else predicted

    def mean_rewards(self, state: BootstrapState, contexts: Float32) -> Float64:
        """The reward of each action, the mean prediction of all networks, float64[N, K]."""
        chunks = network.chunks(len(contexts), self.networks)
        return np.concatenate([self.predict(state, contexts[rows]).mean(axis=0) for rows in chunks])

    def _votes(self, state: BootstrapState, contexts: Float32, eligible: Bool | None) -> Float64:
        ballots = [split_ties(among(predicted, eligible)) for predicted in self.predict(state, contexts)]
        votes: Float64 = np.sum(ballots, axis=0, dtype=np.float64)
        return votes

    def _draw_counts(self, n: int, key: Key) -> NDArray[np.uint8]:
        if not self.bootstrap:
            return np.ones((n, self.networks), np.uint8)
        return key.generator().poisson(1.0, (n, self.networks)).astype(np.uint8)

    def _draw_priors(self, blank: Networks, units: Units, key: Key) -> Networks:
        if not self.prior_scale:
            return blank
        return network.random(blank.sizes, blank.size, key).in_units(Units(0.0, self.prior_scale * units.scale))

    def _prior_rewards(self, priors: Networks, memory: Memory) -> Float64:
        """Rewards of the taken actions under the prior networks, float64[B, N]."""
        if not self.prior_scale:
            return np.zeros((self.networks, len(memory.actions)))
        chunks = network.chunks(len(memory.actions), self.networks)
        return np.concatenate([priors.predict_taken(memory.contexts[i], memory.actions[i]) for i in chunks], axis=1)
