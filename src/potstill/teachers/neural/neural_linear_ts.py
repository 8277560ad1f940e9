"""NeuralLinear-TS: Bayesian linear regression per action on features of a network."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers import memory as memories
from potstill.teachers.contract import EXACT, Bool, Exactness, Float32, Parts
from potstill.teachers.linear import nig
from potstill.teachers.memory import Memory, Weighting
from potstill.teachers.neural import network
from potstill.teachers.neural import noise_selection as noises
from potstill.teachers.neural.base import Neural
from potstill.teachers.neural.network import Networks, Units
from potstill.teachers.neural.noise_selection import Noise
from potstill.teachers.neural.parts import part_memory, scan
from potstill.teachers.probability_best import probability_best
from potstill.teachers.propensities import part_of


class NeuralLinearState(NamedTuple):
    """Network, posterior and observations. Features change with every training, so all observations are needed again.

    Attributes:
        memory: The observations; empty if they are stored elsewhere and were read by `reread`.
        learnt: Number of observations behind the posterior, int64[].
        networks: One network, whose last hidden layer gives the features.
        noise: Noise share that it was trained with.
        posterior: Posterior of the regression on the features and an intercept, in units of rewards.
    """

    memory: Memory
    learnt: NDArray[np.int64]
    networks: Networks
    noise: Noise
    posterior: nig.Posterior


class NeuralLinearTS(Neural, frozen=True, kw_only=True, tag_field="type", tag="neural-linear-ts"):
    """Reward = φ(x)ᵀθ + noise per action, with φ the last hidden layer of a network that all actions share.

    The network is trained on the rewards of the actions taken. Only θ is uncertain, with the conjugate prior
    NIG(0, precision·I, alpha, beta), whose defaults are the paper's. The prior applies to standardised rewards and
    regressors of mean square length 1, unless `standardise` is off as in the paper. Propensities are exact: given a
    context, the rewards of the actions are independent Student-t variables.

    Args:
        precision: Precision of the prior on θ, relative to the noise. Small values are vague.
        alpha: Shape of the prior on the noise variance.
        beta: Scale of the prior on the noise variance.
    """

    precision: float = 0.25
    alpha: float = 3.0
    beta: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("precision", "alpha", "beta"):
            if not 0 < getattr(self, field) < np.inf:
                self._refuse(field, "a positive number")

    @property
    def exactness(self) -> Exactness:
        """Exact, by quadrature."""
        return EXACT

    @property
    def passes(self) -> int:
        """Three: scan, training, regression on the features. 0 with a window, which is kept in memory."""
        return 3 if self.window is None else 0

    def init(self, problem: Problem) -> NeuralLinearState:
        """The prior."""
        memory, networks = memories.empty(problem.width), self._blank(problem)
        posterior = self._posterior(_all_sums(networks, memory, network.RAW), network.RAW)
        return NeuralLinearState(memory, np.array(0), networks, noises.initial(self.recipe.noise), posterior)

    def update(self, state: NeuralLinearState, observations: Observations, key: Key) -> NeuralLinearState:
        """The posterior after more observations: continue training the network, then regress on its features."""
        if not len(observations):
            return state
        self._check_memory(state.memory, int(state.learnt))
        memory = self._append(state.memory, observations)
        units, previous, data = self._units(memory), int(state.learnt), memory.normalised()
        networks, noise = self._fit(state.networks, state.noise, previous, len(observations), data, units, key)
        posterior = self._posterior(_all_sums(networks, data, units), units)
        return NeuralLinearState(memory, np.array(len(memory.actions)), networks, noise, posterior)

    def reread(self, state: NeuralLinearState, parts: Parts, key: Key) -> NeuralLinearState:
        """The posterior after all observations, without keeping them."""
        overview = scan(parts, self.weighting)
        if not overview.rows.sum():
            return state
        units = self._units_of(overview)
        networks, noise = self._fit_parts(state.networks, state.noise, int(state.learnt), parts, overview, key)
        sums = reduce(add, parts.each(_part_sums, networks, units, self.weighting, overview.weight))
        nothing = memories.empty(state.memory.contexts.shape[1])
        return NeuralLinearState(nothing, overview.rows.sum(), networks, noise, self._posterior(sums, units))

    def propensities(
        self,
        state: NeuralLinearState,
        contexts: Float32,
        key: Key,  # noqa: ARG002
        eligible: Bool | None = None,
    ) -> Float32:
        """The probability that each action is best, float32[N, K]."""
        parts = (
            probability_best(*self.marginals(state, contexts[rows]), part_of(eligible, rows))
            for rows in network.chunks(len(contexts))
        )
        return np.concatenate(list(parts))

    def sample_actions(self, state: NeuralLinearState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """Thompson-sampled actions, int64[N, n]."""
        return nig.sample_best(self.marginals(state, contexts), n, key)

    def marginals(self, state: NeuralLinearState, contexts: Float32) -> nig.Marginals:
        """The posterior of each action's mean reward in each context."""
        return nig.marginals(state.posterior, regressors(state.networks, contexts))

    def mean_rewards(self, state: NeuralLinearState, contexts: Float32) -> nig.Float64:
        """The posterior mean reward of each action, float64[N, K]."""
        chunks = network.chunks(len(contexts))
        return np.concatenate([regressors(state.networks, contexts[rows]) for rows in chunks]) @ state.posterior.mean.T

    def _posterior(self, sums: nig.Sums, units: Units) -> nig.Posterior:
        """The posterior in units of rewards, from sums in standardised rewards."""
        precision = self.precision * (_square_length(sums) if self.standardise else 1.0)
        return _in_units(nig.posterior(sums, precision, self.alpha, self.beta), units)


def regressors(networks: Networks, contexts: Float32) -> nig.Float64:
    """Features of each context and a constant 1, float64[N, H + 1]."""
    return nig.with_intercept(networks.hidden(contexts)[0].astype(np.float32))


def _square_length(sums: nig.Sums) -> float:
    """Mean square length of the regressors, at least 1 because of the constant. Training leaves it arbitrary."""
    n = float(sums.n.sum())
    return float(np.trace(sums.gram, axis1=1, axis2=2).sum()) / n if n else 1.0


def _part_sums(
    number: int,  # noqa: ARG001
    observations: Observations,
    networks: Networks,
    units: Units,
    weighting: Weighting,
    weight: float,
) -> nig.Sums:
    return _all_sums(networks, part_memory(observations, weighting, weight), units)


def _all_sums(networks: Networks, memory: Memory, units: Units) -> nig.Sums:
    """Sufficient statistics of standardised rewards, in chunks."""
    return reduce(add, (_sums(networks, memory.rows(rows), units) for rows in network.chunks(len(memory.rewards))))


def _sums(networks: Networks, memory: Memory, units: Units) -> nig.Sums:
    features, rewards = regressors(networks, memory.contexts), units.standardise(memory.rewards)
    return nig.sums(features, memory.actions, rewards, memory.weights, networks.sizes[-1])


def _in_units(standard: nig.Posterior, units: Units) -> nig.Posterior:
    """The posterior for rewards, from that for standardised rewards. The intercept, last, carries the shift."""
    mean = standard.mean * units.scale
    mean[:, -1] += units.shift
    return nig.Posterior(mean, standard.root, standard.alpha, standard.beta * units.scale**2)
