"""Adaptive-TS: a regression that learns its own prior: scales, likeness of actions, and whether a network helps."""

from __future__ import annotations

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
from potstill.teachers.contract import Exactness, Float32
from potstill.teachers.linear import nig
from potstill.teachers.memory import Memory
from potstill.teachers.neural import Networks, Neural, Noise, Units, network
from potstill.teachers.neural import noise_selection as noises

Float64 = nig.Float64

#: One observation in this many is held out from the network, so that its features are not overfit there.
_HONEST = 5
#: Observations that scales are learnt from, and on which the network is judged. The earliest, where actions were still
#: explored: a policy that has converged shows only what any model explains.
_EXPLORED = 400
#: Nats by which the network has to predict them better.
_MARGIN = 5.0
#: Patterns of actions that the network's block keeps: with more actions, they are few and broad.
_RANK = 10
#: Weight of the learnt noise against residuals, in observations.
_NOISE_WEIGHT = 20.0
#: Smallest noise variance, as a share of that of the rewards.
_LEAST_NOISE = 1e-3
#: Observations per action after which the learnt prior variances count double.
_FADING = 150.0
#: Contexts whose covariances are worked out at once.
_CHUNK = 512


class AdaptiveState(NamedTuple):
    """What was observed and learnt.

    Attributes:
        memory: The observations.
        seen: Observations in all, int64[].
        learnt: Observations there were when the network and the scales were learnt last, int64[].
        unit: Mean and standard deviation of the first batch's rewards, float64[2]; the regression is in these units.
        networks: One network, whose last hidden layer is a block of features.
        noise: Noise that it was trained with.
        mixes: Prior scales without the network and with it.
        networked: Whether the network's block is used, bool[].
        posterior: After the observations.
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
    """One regression for all problems: what others leave to the user's prior, it learns from the first batches.

    Reward = constant + xᵀθ + φ(x)ᵀψ + noise for each action, φ the last hidden layer of a network. Prior scales, and
    how alike the coefficients of different actions are (all, neighbours in the list, none), maximise the marginal
    likelihood. The network's part is used only while it predicts observations better that the network was not trained
    on.

    Actions are correlated, so that propensities are shares of joint draws; with two actions they are exact.

    Args:
        vagueness: Factor on the learnt prior variances, which doubles with the first 150 observations per action and
            goes on so: scales are learnt from few of them, and the few features that matter must not stay shrunk to
            the size of the many that do not.
        temperature: Factor on the standard deviations of the posterior that is sampled; 1 is Thompson sampling, less
            exploits more, 0 is greedy.
        refit: The network is retrained and scales are relearnt when observations have grown by this factor.
        draws: Posterior draws for propensities.
    """

    hidden: tuple[int, ...] = (100, 50)
    vagueness: float = 3.0
    temperature: float = 0.5
    refit: float = 1.2
    draws: int = 1024

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window == 1:
            # The one observation may be an honest one, and nothing is left to train the network on.
            self._refuse("window", "2 or more, or left out")
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
            noises.given(self.recipe.noise),
            mixes,
            np.array(False),
            Posterior((), np.zeros(0), np.zeros((0, 0)), np.ones(())),
        )
        return prior._replace(posterior=self._posterior(prior, self._sums(prior, slice(None)), networked=False))

    def update(self, state: AdaptiveState, observations: Observations, key: Key) -> AdaptiveState:
        """The posterior after more observations."""
        if not len(observations):
            return state
        kept = self._remember(state.memory, observations)
        first = not len(state.memory.actions)
        state = state._replace(memory=kept, seen=state.seen + len(observations))
        if first:
            state = state._replace(unit=np.array(network.units_of(kept.rewards)))
        if state.seen >= self.refit * state.learnt:
            state = self._adapted(state, key)
        fitted = self._posterior(state, self._sums(state, slice(None)), networked=bool(state.networked))
        return state._replace(posterior=fitted)

    def propensities(self, state: AdaptiveState, contexts: Float32, key: Key) -> Float32:
        """The probability that each action is best, float32[N, K]: shares of draws; exact for two actions."""
        if self._actions(state) == 2:
            rng = key.generator()
            parts = [joints.shares(joint, self.draws, rng) for joint in self._joints(state, contexts)]
            return np.concatenate([np.zeros((0, 2), np.float32), *parts])
        fitted, x = state.posterior, self._regressors(state, contexts)
        return coregional.shares(fitted, x, self._blocks(state), self.temperature, self.draws, key)

    def sample_actions(self, state: AdaptiveState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """Thompson sampling's own actions, int64[N, n]."""
        rng = key.generator()
        parts = [joints.draws(joint, n, rng).argmax(axis=1) for joint in self._joints(state, contexts)]
        return np.concatenate([np.zeros((0, n), np.int64), *parts])

    def _joints(self, state: AdaptiveState, contexts: Float32) -> list[joints.Joint]:
        x, blocks = self._regressors(state, contexts), self._blocks(state)
        chunks = [x[i : i + _CHUNK] for i in range(0, len(x), _CHUNK)]
        return [coregional.joint(state.posterior, chunk, blocks, self.temperature) for chunk in chunks]

    def _adapted(self, state: AdaptiveState, key: Key) -> AdaptiveState:
        """The network trained on, prior scales learnt, and the better of the two models chosen."""
        honest = self._honest(state)
        seen_by_network = state.memory.rows(~honest)
        units, learnt = self._units(seen_by_network), _shown(int(state.learnt))
        new = _shown(int(state.seen)) - learnt
        networks, noise = self._fitted(state.networks, state.noise, learnt, new, seen_by_network, units, key)
        state = state._replace(networks=networks, noise=noise, learnt=state.seen)
        rows = np.flatnonzero(honest)[:_EXPLORED]
        state = state._replace(mixes=self._mixes(state, rows))
        without, with_network = (self._score(state, honest, rows, networked=n) for n in (False, True))
        return state._replace(networked=np.array(with_network > without + _MARGIN))

    def _mixes(self, state: AdaptiveState, honest: NDArray[np.int64]) -> tuple[Mix, Mix]:
        """Prior scales without the network, for which every observation is honest, and with it."""
        without, with_network = state.mixes
        everything = np.arange(min(len(state.memory.actions), _EXPLORED))
        return self._mix(state, everything, 2, without), self._mix(state, honest, 3, with_network)

    def _mix(self, state: AdaptiveState, rows: NDArray[np.int64], blocks: int, before: Mix) -> Mix:
        """Scales of the first `blocks` blocks, learnt from some observations."""
        if not len(rows):
            return before
        memory = state.memory.rows(rows)
        x, targets = self._regressors(state, memory.contexts), self._targets(state, memory)
        parts = np.split(x, np.cumsum(self._blocks(state))[:-1], axis=1)
        return evidence.learn(parts[:blocks], memory.actions, targets, self._actions(state), before)

    def _score(
        self, state: AdaptiveState, honest: NDArray[np.bool_], rows: NDArray[np.int64], networked: bool
    ) -> float:
        """Log density of honest observations, given the others."""
        fitted = self._posterior(state, self._sums(state, ~honest), networked=networked)
        memory = state.memory.rows(rows)
        x = self._regressors(state, memory.contexts)
        mean, variance = coregional.predictive(fitted, x, memory.actions, self._blocks(state))
        error, spread = self._targets(state, memory) - mean[:, 0], variance[:, 0, 0]
        return float(-0.5 * (np.log(spread) + error**2 / spread).sum())

    def _posterior(self, state: AdaptiveState, total: nig.Sums, *, networked: bool) -> Posterior:
        """The posterior, first with the learnt noise, then with that of its own residuals."""
        mix, k, blocks = state.mixes[networked], self._actions(state), self._blocks(state)
        covariances = self.vagueness * (1 + float(state.seen) / (_FADING * k)) * mix.covariances(k)
        factors = [coregional.factor(covariances[0]), coregional.factor(covariances[1])]
        factors.append(coregional.factor(covariances[2], _RANK) if networked else np.zeros((k, 0)))
        learnt = float(np.exp(mix.noise))
        fitted = coregional.posterior(tuple(factors), total, blocks, learnt)
        squares = coregional.residuals(total, coregional.coefficients(fitted, blocks))
        noise = (_NOISE_WEIGHT * learnt + squares) / (_NOISE_WEIGHT + total.n.sum())
        return coregional.posterior(tuple(factors), total, blocks, max(noise, _LEAST_NOISE))

    def _sums(self, state: AdaptiveState, rows: NDArray[np.bool_] | slice) -> nig.Sums:
        memory = state.memory.rows(rows)
        x, targets = self._regressors(state, memory.contexts), self._targets(state, memory)
        return nig.sums(x, memory.actions, targets, memory.weights, self._actions(state))

    def _regressors(self, state: AdaptiveState, contexts: Float32) -> Float64:
        """A constant, the columns of the context, and the network's features, float64[N, 1 + d + H]."""
        rows = network.chunks(len(contexts))
        hidden = [state.networks.hidden(contexts[chunk])[0] for chunk in rows]
        return np.concatenate([np.ones((len(contexts), 1)), contexts, np.concatenate(hidden)], axis=1)

    def _targets(self, state: AdaptiveState, memory: Memory) -> Float64:
        return Units(*state.unit).standardise(memory.rewards)

    def _honest(self, state: AdaptiveState) -> NDArray[np.bool_]:
        n = len(state.memory.actions)
        honest: NDArray[np.bool_] = np.arange(int(state.seen) - n, int(state.seen)) % _HONEST == _HONEST - 1
        return honest

    def _blocks(self, state: AdaptiveState) -> tuple[int, ...]:
        return (1, state.networks.sizes[0], state.networks.sizes[-2])

    def _actions(self, state: AdaptiveState) -> int:
        return state.networks.sizes[-1]


def _shown(observations: int) -> int:
    """Number of the first `n` observations that the network is trained on."""
    return observations - observations // _HONEST
