"""Adaptive-TS: Bayesian regression that learns its prior from the data.

Empirical Bayes sets the prior scales and the correlation between actions. A hold-out decides whether to use features of
a network.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers import joint_normal as joints
from potstill.teachers import memory as memories
from potstill.teachers.adaptive import coregional, evidence
from potstill.teachers.adaptive.coregional import Posterior
from potstill.teachers.adaptive.evidence import Mix
from potstill.teachers.contract import Bool, Exactness, Float32
from potstill.teachers.linear import nig
from potstill.teachers.memory import Memory
from potstill.teachers.neural import Networks, Neural, Noise, Units, network
from potstill.teachers.neural import noise_selection as noises

Float64 = nig.Float64

#: One observation in this many is held out from network training, so that its features are not overfit there.
_HOLD_OUT = 5
#: Number of observations for learning prior scales and for scoring the network. The earliest ones, which still explore
#: actions: on the data of a converged policy every model predicts well.
_EXPLORED = 400
#: Minimum gain in hold-out log likelihood, in nats, for using the network.
_MARGIN = 5.0
#: Maximum rank of the covariance between actions in the network's block.
_RANK = 10
#: Weight of the learnt noise variance against that of the residuals, in observations.
_NOISE_WEIGHT = 20.0
#: Smallest noise variance, as a share of the rewards' variance.
_LEAST_NOISE = 1e-3
#: Number of observations per action that doubles the learnt prior variances.
_FADING = 150.0
#: Numbers per chunk of contexts, for draws or covariances: 4 MB, so that they stay near the processor.
_CHUNK = 1_000_000


class AdaptiveState(NamedTuple):
    """Observations, learnt prior and posterior.

    Attributes:
        memory: The observations.
        seen: Number of observations so far, int64[].
        learnt: Value of `seen` when the network and the prior scales were last learnt, int64[].
        unit: Mean and standard deviation of the first batch's rewards, float64[2]. The regression uses these units.
        networks: One network, whose last hidden layer is a block of features.
        noise: Noise share that the network was trained with.
        mixes: Prior scales without the network and with it.
        networked: Whether the network's block is used, bool[].
        posterior: Posterior given the observations.
    """

    memory: Memory
    seen: NDArray[np.int64]
    learnt: NDArray[np.int64]
    unit: Float64
    networks: Networks
    noise: Noise
    mixes: tuple[Mix, Mix]
    networked: NDArray[np.bool_]
    posterior: Posterior


class AdaptiveTS(Neural, frozen=True, kw_only=True, tag_field="type", tag="adaptive-ts"):
    """One regression for all problems. It learns its prior from the first batches instead of from options.

    Reward = constant + xᵀθ + φ(x)ᵀψ + noise for each action, with φ the last hidden layer of a network. Prior scales,
    and the correlation between the coefficients of actions (all, neighbours in the list, none), maximise the marginal
    likelihood. The network's block is used only while it improves the prediction of held-out observations.

    Actions are correlated, so propensities are shares of joint draws; with two actions they are exact.

    Args:
        vagueness: Factor on the learnt prior variances. It grows linearly with the data and doubles after 150
            observations per action. Reason: scales are learnt from few observations, and the few features that
            matter must not stay shrunk to the size of the many that do not.
        temperature: Factor on the standard deviations of the sampled posterior. 1 is Thompson sampling, less exploits
            more, 0 is greedy.
        refit: Growth factor of the number of observations that triggers retraining of the network and of the scales.
        draws: Number of posterior draws for propensities.
    """

    hidden: tuple[int, ...] = (100, 50)
    vagueness: float = 3.0
    temperature: float = 0.5
    refit: float = 1.2
    draws: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window == 1:
            # The single observation may be held out, which leaves nothing to train the network on.
            self._refuse("window", "2 or more, or None")
        if not 0 < self.vagueness < np.inf:
            self._refuse("vagueness", "a positive number")
        if not 0 <= self.temperature < np.inf:
            self._refuse("temperature", "0 or more")
        if not 1 <= self.refit < np.inf:
            self._refuse("refit", "1 or more")
        if self.draws < 1:
            self._refuse("draws", "1 or more")

    @property
    def exactness(self) -> Exactness:
        """Sampled: a share of `draws` has a standard error of at most ½/√draws."""
        return Exactness("sampled", draws=self.draws, standard_error=0.5 / self.draws**0.5)

    def init(self, problem: Problem) -> AdaptiveState:
        """The prior."""
        networks, mixes = self._blank(problem), (evidence.start(2), evidence.start(3))
        nothing = np.array(0)
        prior = AdaptiveState(
            memories.empty(problem.width),
            nothing,
            nothing,
            np.array([0.0, 1.0]),
            networks,
            noises.initial(self.recipe.noise),
            mixes,
            np.array(False),
            Posterior((), np.zeros(0), np.zeros((0, 0)), np.ones(())),
        )
        return prior._replace(posterior=self._posterior(prior, self._sums(prior, slice(None)), networked=False))

    def update(self, state: AdaptiveState, observations: Observations, key: Key) -> AdaptiveState:
        """The posterior after more observations."""
        if not len(observations):
            return state
        kept = self._append(state.memory, observations)
        first = not len(state.memory.actions)
        state = state._replace(memory=kept, seen=state.seen + len(observations))
        if first:
            state = state._replace(unit=np.array(network.units_of(kept.rewards)))
        if state.seen >= self.refit * state.learnt:
            state = self._relearn(state, key)
        fitted = self._posterior(state, self._sums(state, slice(None)), networked=bool(state.networked))
        return state._replace(posterior=fitted)

    def propensities(self, state: AdaptiveState, contexts: Float32, key: Key, eligible: Bool | None = None) -> Float32:
        """The probability that each action is best, float32[N, K]: shares of draws; exact for two actions."""
        rng, found = key.generator(), self._joints(state, contexts, self.draws)
        parts = joints.shares_in_turn(found, self.draws, rng, eligible, joints.cholesky_root)
        return np.concatenate([np.zeros((0, self._actions(state)), np.float32), *parts])

    def sample_actions(self, state: AdaptiveState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """Thompson-sampled actions, int64[N, n]."""
        rng, found = key.generator(), self._joints(state, contexts, n)
        parts = [joints.draws(joint, n, rng, joints.cholesky_root).argmax(axis=1) for joint in found]
        return np.concatenate([np.zeros((0, n), np.int64), *parts])

    def mean_rewards(self, state: AdaptiveState, contexts: Float32) -> Float64:
        """The posterior mean reward of each action, float64[N, K]."""
        coefficients = coregional.coefficients(state.posterior, self._blocks(state))
        offset, scale = state.unit
        return np.asarray(offset + scale * (self._regressors(state, contexts) @ coefficients.T))

    def _joints(self, state: AdaptiveState, contexts: Float32, draws: int) -> Iterator[joints.Joint]:
        """The tempered posterior of the mean rewards, in chunks of contexts that bound memory."""
        k, x = self._actions(state), self._regressors(state, contexts)
        rows = max(1, _CHUNK // (k * max(draws, k)))
        for joint in coregional.joints(state.posterior, x, self._blocks(state), rows):
            yield joint._replace(covariance=self.temperature**2 * joint.covariance)

    def _relearn(self, state: AdaptiveState, key: Key) -> AdaptiveState:
        """Retrain the network, learn the prior scales, and choose the model with or without the network."""
        held_out = self._held_out(state)
        training = state.memory.normalised().rows(~held_out)
        units, previous = self._units(training), _training_count(int(state.learnt))
        new = _training_count(int(state.seen)) - previous
        networks, noise = self._fit(state.networks, state.noise, previous, new, training, units, key)
        state = state._replace(networks=networks, noise=noise, learnt=state.seen)
        rows = np.flatnonzero(held_out)[:_EXPLORED]
        state = state._replace(mixes=self._mixes(state, rows))
        without, with_network = (self._hold_out_score(state, held_out, rows, networked=n) for n in (False, True))
        return state._replace(networked=np.array(with_network > without + _MARGIN))

    def _mixes(self, state: AdaptiveState, held_out: NDArray[np.int64]) -> tuple[Mix, Mix]:
        """Prior scales without the network, from all observations, and with it, from held-out observations."""
        without, with_network = state.mixes
        everything = np.arange(min(len(state.memory.actions), _EXPLORED))
        return self._mix(state, everything, 2, without), self._mix(state, held_out, 3, with_network)

    def _mix(self, state: AdaptiveState, rows: NDArray[np.int64], blocks: int, before: Mix) -> Mix:
        """Prior scales of the first `blocks` blocks, learnt from the observations at `rows`."""
        if not len(rows):
            return before
        memory = state.memory.rows(rows)
        x, targets = self._regressors(state, memory.contexts), self._targets(state, memory)
        parts = np.split(x, np.cumsum(self._blocks(state))[:-1], axis=1)
        return evidence.learn(parts[:blocks], memory.actions, targets, self._actions(state), before)

    def _hold_out_score(
        self, state: AdaptiveState, held_out: NDArray[np.bool_], rows: NDArray[np.int64], networked: bool
    ) -> float:
        """Log density of held-out observations, given the others."""
        fitted = self._posterior(state, self._sums(state, ~held_out), networked=networked)
        memory = state.memory.rows(rows)
        x = self._regressors(state, memory.contexts)
        mean, variance = coregional.predictive(fitted, x, memory.actions, self._blocks(state))
        error, spread = self._targets(state, memory) - mean[:, 0], variance[:, 0, 0]
        return float(-0.5 * (np.log(spread) + error**2 / spread).sum())

    def _posterior(self, state: AdaptiveState, total: nig.Sums, *, networked: bool) -> Posterior:
        """The posterior: first with the learnt noise variance, then with that of its residuals."""
        mix, k, blocks = state.mixes[networked], self._actions(state), self._blocks(state)
        covariances = self.vagueness * (1 + float(state.seen) / (_FADING * k)) * mix.covariances(k)
        factors = [coregional.factor(covariances[0]), coregional.factor(covariances[1])]
        factors.append(coregional.factor(covariances[2], _RANK) if networked else np.zeros((k, 0)))
        prior_noise = float(np.exp(mix.noise))
        fitted = coregional.posterior(tuple(factors), total, blocks, prior_noise)
        squares = coregional.residuals(total, coregional.coefficients(fitted, blocks))
        noise = (_NOISE_WEIGHT * prior_noise + squares) / (_NOISE_WEIGHT + total.n.sum())
        return coregional.posterior(tuple(factors), total, blocks, max(noise, _LEAST_NOISE))

    def _sums(self, state: AdaptiveState, rows: NDArray[np.bool_] | slice) -> nig.Sums:
        memory = state.memory.normalised().rows(rows)
        x, targets = self._regressors(state, memory.contexts), self._targets(state, memory)
        return nig.sums(x, memory.actions, targets, memory.weights, self._actions(state))

    def _regressors(self, state: AdaptiveState, contexts: Float32) -> Float64:
        """A constant, the context columns and the network's features, float64[N, 1 + d + H]."""
        rows = network.chunks(len(contexts))
        hidden = [state.networks.hidden(contexts[chunk])[0] for chunk in rows]
        return np.concatenate([np.ones((len(contexts), 1)), contexts, np.concatenate(hidden)], axis=1)

    def _targets(self, state: AdaptiveState, memory: Memory) -> Float64:
        return Units(*state.unit).standardise(memory.rewards)

    def _held_out(self, state: AdaptiveState) -> NDArray[np.bool_]:
        n = len(state.memory.actions)
        held_out: NDArray[np.bool_] = np.arange(int(state.seen) - n, int(state.seen)) % _HOLD_OUT == _HOLD_OUT - 1
        return held_out

    def _blocks(self, state: AdaptiveState) -> tuple[int, ...]:
        return (1, state.networks.sizes[0], state.networks.sizes[-2])

    def _actions(self, state: AdaptiveState) -> int:
        return state.networks.sizes[-1]


def _training_count(observations: int) -> int:
    """Number of the first n observations that the network is trained on."""
    return observations - observations // _HOLD_OUT
