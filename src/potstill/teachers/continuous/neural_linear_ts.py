"""NeuralLinear-TS on an interval: Bayesian linear regression on features of a network and functions of the action."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers import memory as memories
from potstill.teachers.continuous import evidence, maximiser, regression
from potstill.teachers.continuous.basis import Axis, cosines, falls
from potstill.teachers.continuous.maximiser import SampledMaximisers
from potstill.teachers.continuous.regression import Regression
from potstill.teachers.contract import Float32, Float64
from potstill.teachers.linear import nig
from potstill.teachers.memory import Memory
from potstill.teachers.neural import Networks, Neural, Noise, network
from potstill.teachers.neural import noise_selection as noises

#: Smallest mean variance of features by which they are scaled: below it a network gives the same for all contexts.
_CONSTANT = 1e-12


class ContinuousNeuralLinearState(NamedTuple):
    """Network, posterior and observations. Features change with every training, so all observations are needed again.

    Attributes:
        axis: The action space.
        memory: The observations.
        networks: One network, whose last hidden layer gives the features; its outputs are coefficients of the basis.
        noise: Noise share that it was trained with.
        scale: Factor on the features, float64[].
        regression: Posterior of the regression on the features.
    """

    axis: Axis
    memory: Memory
    networks: Networks
    noise: Noise
    scale: NDArray[np.float64]
    regression: Regression


class ContinuousNeuralLinearTS(
    SampledMaximisers, Neural, frozen=True, kw_only=True, tag_field="type", tag="continuous-neural-linear-ts"
):
    """Reward = (1, φ(x))ᵀ W B(a) + noise, with φ the last hidden layer of a network, and W uncertain.

    The network has an output for each function B of the action. It is trained on the rewards of the actions taken, and
    only W is uncertain. Prior scales and noise of W are learnt as by `ContinuousLinearTS`. The state keeps all
    observations, or the latest `window`.

    Args:
        size: Number of basis functions of the action, with the constant. More resolve narrower peaks.
        draws: Number of posterior draws per context for propensities.
    """

    hidden: tuple[int, ...] = (100, 50)
    size: int = 12
    draws: int = 512

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_sampling()

    def init(self, problem: Problem) -> ContinuousNeuralLinearState:
        """The prior."""
        networks, nothing = self._blank(problem), memories.empty(problem.width)
        axis, scale = self.axis(problem), np.array(1.0)
        fitted = self._regression(axis, networks, scale, nothing)
        noise = noises.initial(self.recipe.noise)
        return ContinuousNeuralLinearState(axis, nothing, networks, noise, scale, fitted)

    def update(
        self, state: ContinuousNeuralLinearState, observations: Observations, key: Key
    ) -> ContinuousNeuralLinearState:
        """The posterior after more observations: continue training the network, then regress on its features."""
        if not len(observations):
            return state
        kept, previous = self._append(state.memory, observations), len(state.memory.actions)
        data, units = kept.normalised(), self._units(kept)
        smooth = data._replace(actions=self._basis(state.axis, data.actions) * np.sqrt([1, *falls(self.size)]))
        networks, noise = self._fit(state.networks, state.noise, previous, len(observations), smooth, units, key)
        scale = _scale(networks, data.contexts)
        fitted = self._regression(state.axis, networks, scale, data)
        return ContinuousNeuralLinearState(state.axis, kept, networks, noise, scale, fitted)

    def propensities(self, state: ContinuousNeuralLinearState, contexts: Float32, key: Key) -> Float32:
        """The probability that the best action is in each bin, float32[N, bins]: shares of draws."""
        return maximiser.labels(state.axis, self._maximisers(state, contexts, self.draws, key))

    def sample_actions(self, state: ContinuousNeuralLinearState, contexts: Float32, n: int, key: Key) -> Float64:
        """Thompson-sampled actions, float64[N, n]."""
        return maximiser.actions(state.axis, self._maximisers(state, contexts, n, key), n)

    def mean_rewards(self, state: ContinuousNeuralLinearState, contexts: Float32) -> Float64:
        """The posterior mean reward at the middle of each bin, float64[N, bins]."""
        features = _features(state.networks, state.scale, contexts)
        return regression.mean_rewards(state.regression, features, _none(contexts), state.axis, self.size)

    def _outputs(self, problem: Problem) -> int:  # noqa: ARG002
        return self.size

    def _basis(self, axis: Axis, actions: NDArray[np.float64]) -> Float64:
        return cosines(axis.space.unit(actions), self.size)

    def _maximisers(self, state: ContinuousNeuralLinearState, contexts: Float32, n: int, key: Key) -> Iterator[Float64]:
        features = _features(state.networks, state.scale, contexts)
        given = regression.coefficients(state.regression, features, self.size)
        return maximiser.of_contexts(given, state.axis, state.regression.unit, n, key)

    def _regression(self, axis: Axis, networks: Networks, scale: NDArray[np.float64], data: Memory) -> Regression:
        parts = (data.rows(rows) for rows in network.chunks(len(data.rewards)))
        total = reduce(add, (self._sums(axis, networks, scale, part) for part in parts))
        return regression.fit(total, self.size, evidence.start(self.hidden[-1], 0))

    def _sums(self, axis: Axis, networks: Networks, scale: NDArray[np.float64], data: Memory) -> nig.Sums:
        features, basis = _features(networks, scale, data.contexts), self._basis(axis, data.actions)
        return regression.sums(features, _none(features), basis, data.rewards, data.weights)


def _features(networks: Networks, scale: NDArray[np.float64], contexts: Float32) -> Float64:
    """Features of contexts, float64[N, H]."""
    parts = [networks.hidden(contexts[rows])[0] for rows in network.chunks(len(contexts))]
    return np.asarray(scale * np.concatenate(parts))


def _none(rows: NDArray[Any]) -> NDArray[np.float64]:
    """No functions of the context beside the features: the network has learnt them."""
    return np.zeros((len(rows), 0))


def _scale(networks: Networks, contexts: Float32) -> NDArray[np.float64]:
    """The factor that gives features the spread of columns in [0, 1]. Training leaves their size arbitrary."""
    variance = float(networks.hidden(contexts[: network.CHUNK])[0].var(axis=0).mean())
    return np.array(np.sqrt(1 / 12 / variance) if variance > _CONSTANT else 1.0)
