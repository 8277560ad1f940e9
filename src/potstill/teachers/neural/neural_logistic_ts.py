"""NeuralLogistic-TS: Bayesian logistic regression per action on features of a network, for rewards that are 0 or 1."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.problem import Observations, Problem, RewardKind
from potstill.teachers import memory as memories
from potstill.teachers.contract import EXACT, Bool, Exactness, Float32, Parts
from potstill.teachers.glm import BERNOULLI, Expansion, LaplacePosterior, Predictors, check_rewards, laplace
from potstill.teachers.linear import Float64, Sums, nig
from potstill.teachers.memory import Memory, Weighting
from potstill.teachers.neural import network
from potstill.teachers.neural import noise_selection as noises
from potstill.teachers.neural.base import Neural
from potstill.teachers.neural.network import Networks
from potstill.teachers.neural.noise_selection import Noise
from potstill.teachers.neural.parts import part_memory, scan
from potstill.teachers.probability_best import probability_best


class Features(NamedTuple):
    """Regressors of contexts: the last hidden layer of a network, divided by its length, and a constant 1.

    Attributes:
        networks: One network.
        length: Root mean square length of its last hidden layer, float64[]: training leaves it arbitrary.
    """

    networks: Networks
    length: Float64

    def regressors(self, contexts: Float32) -> Float64:
        """Regressors float64[N, H + 1]."""
        return nig.with_intercept((self.networks.hidden(contexts)[0] / self.length).astype(np.float32))

    def of(self, rows: Memory) -> Float64:
        """Regressors of some observations."""
        return self.regressors(rows.contexts)


class NeuralLogisticState(NamedTuple):
    """Features, posterior and observations.

    Attributes:
        memory: The observations; empty if they are stored elsewhere and were read by `reread`.
        learnt: Number of observations behind the posterior, int64[].
        features: Features of contexts.
        noise: Noise share that the network was trained with.
        posterior: Posterior of the regression on the features.
    """

    memory: Memory
    learnt: NDArray[np.int64]
    features: Features
    noise: Noise
    posterior: LaplacePosterior


class NeuralLogisticTS(Neural, frozen=True, kw_only=True, tag_field="type", tag="neural-logistic-ts"):
    """P(reward = 1) = logistic(φ(x)ᵀθ) per action, with φ the last hidden layer of a network that all actions share.

    The network is trained as that of `NeuralLinearTS`. Only θ is uncertain. Its prior and posterior are those of
    `LogisticTS` on features of mean square length 1. Propensities are exact given the Laplace posterior.

    Args:
        precision: Precision of the prior on θ before any observation; then it is learnt.
    """

    precision: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.precision < np.inf:
            self._refuse("precision", "a positive number")

    @property
    def exactness(self) -> Exactness:
        """Exact given the Laplace approximation of the posterior, by quadrature."""
        return EXACT

    @property
    def reward_kinds(self) -> tuple[RewardKind, ...]:
        """Kinds of reward that it learns from."""
        return BERNOULLI.kinds

    @property
    def passes(self) -> int:
        """The most passes: scan, training, then those of `LogisticTS`. 0 with a window, which is kept in memory."""
        return 3 + laplace.EVALUATIONS if self.window is None else 0

    def init(self, problem: Problem) -> NeuralLogisticState:
        """The prior."""
        features = Features(self._blank(problem), np.array(1.0))
        prior = laplace.prior(self.count(problem.actions), self.hidden[-1] + 1, self.precision)
        noise = noises.initial(self.recipe.noise)
        return NeuralLogisticState(memories.empty(problem.width), np.array(0), features, noise, prior)

    def update(self, state: NeuralLogisticState, observations: Observations, key: Key) -> NeuralLogisticState:
        """The posterior after more observations: continue training the network, then regress on its features."""
        if not len(observations):
            return state
        check_rewards(BERNOULLI, observations.rewards, type(self).__name__)
        self._check_memory(state.memory, int(state.learnt))
        memory = self._append(state.memory, observations)
        data, previous, new = memory.normalised(), int(state.learnt), len(observations)
        networks, noise = self._fit(state.features.networks, state.noise, previous, new, data, self._units(memory), key)
        features, sums = _standardised(networks, _sums(networks, data))

        def expand_all(coefficients: Float64) -> Expansion:
            return laplace.expand_in_chunks(features.of, data, BERNOULLI, coefficients)

        posterior = laplace.fit(sums, BERNOULLI, expand_all)
        return NeuralLogisticState(memory, np.array(len(memory.actions)), features, noise, posterior)

    def reread(self, state: NeuralLogisticState, parts: Parts, key: Key) -> NeuralLogisticState:
        """The posterior after all observations, without keeping them."""
        overview = scan(parts, self.weighting)
        if not overview.rows.sum():
            return state
        previous, weighting, weight = int(state.learnt), self.weighting, overview.weight
        networks, noise = self._fit_parts(state.features.networks, state.noise, previous, parts, overview, key)
        features, sums = _standardised(networks, reduce(add, parts.each(_part_sums, networks, weighting, weight)))

        def expand_all(coefficients: Float64) -> Expansion:
            return reduce(add, parts.each(_part_expansion, features, coefficients, weighting, weight))

        posterior = laplace.fit(sums, BERNOULLI, expand_all)
        nothing = memories.empty(state.memory.contexts.shape[1])
        return NeuralLogisticState(nothing, overview.rows.sum(), features, noise, posterior)

    def propensities(
        self,
        state: NeuralLogisticState,
        contexts: Float32,
        key: Key,  # noqa: ARG002
        eligible: Bool | None = None,
    ) -> Float32:
        """The probability that each action is best, float32[N, K]."""
        mean, scale = self.predictors(state, contexts)
        return probability_best(mean, scale, np.full(mean.shape[1], np.inf), eligible)

    def sample_actions(self, state: NeuralLogisticState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """Thompson-sampled actions, int64[N, n]."""
        return laplace.sample_best(self.predictors(state, contexts), n, key)

    def mean_rewards(self, state: NeuralLogisticState, contexts: Float32) -> Float64:
        """The posterior mean reward of each action, float64[N, K]: rates."""
        return BERNOULLI.expected(*self.predictors(state, contexts))

    def predictors(self, state: NeuralLogisticState, contexts: Float32) -> Predictors:
        """The posterior of each action's linear predictor in each context."""
        found = [
            laplace.predictors(state.posterior, state.features.regressors(contexts[rows]))
            for rows in network.chunks(len(contexts))
        ]
        return Predictors(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))


def _standardised(networks: Networks, sums: Sums) -> tuple[Features, Sums]:
    """Features of mean square length 1, and the sums of all observations in them, from sums of the hidden layer."""
    squares = float(np.trace(sums.gram[:, :-1, :-1], axis1=1, axis2=2).sum()) / float(sums.n.sum())
    length = np.sqrt(squares) if squares > 0 else 1.0
    scale = np.append(np.full(sums.moment.shape[1] - 1, 1 / length), 1.0)
    standard = sums._replace(gram=sums.gram * np.outer(scale, scale), moment=sums.moment * scale)
    return Features(networks, np.array(length)), standard


def _sums(networks: Networks, data: Memory) -> Sums:
    """Sums of regressions on the hidden layer, in chunks."""
    raw = Features(networks, np.array(1.0))

    def of(rows: Memory) -> Sums:
        return nig.sums(raw.of(rows), rows.actions, rows.rewards, rows.weights, networks.sizes[-1])

    return reduce(add, (of(data.rows(rows)) for rows in network.chunks(len(data.rewards))))


def _part_sums(
    number: int,  # noqa: ARG001
    observations: Observations,
    networks: Networks,
    weighting: Weighting,
    weight: float,
) -> Sums:
    check_rewards(BERNOULLI, observations.rewards, NeuralLogisticTS.__name__)
    return _sums(networks, part_memory(observations, weighting, weight))


def _part_expansion(
    number: int,  # noqa: ARG001
    observations: Observations,
    features: Features,
    coefficients: Float64,
    weighting: Weighting,
    weight: float,
) -> Expansion:
    data = part_memory(observations, weighting, weight)
    return laplace.expand_in_chunks(features.of, data, BERNOULLI, coefficients)
