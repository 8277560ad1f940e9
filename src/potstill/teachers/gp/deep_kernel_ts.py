"""DeepKernel-TS: a Gaussian process on the last layer of a network, beside the context itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers.contract import Float32
from potstill.teachers.gp import regression
from potstill.teachers.gp.gp_ts import GaussianProcessTS
from potstill.teachers.gp.pairs import Float64
from potstill.teachers.memory import Memory, weights
from potstill.teachers.neural import GreedyState, Networks, NeuralGreedy, Noise, Recipe

#: Fewest held-out observations to learn hyperparameters from them alone.
_FEWEST = 20


class DeepKernelState(NamedTuple):
    """State of the Gaussian process, and the network that gives its features.

    Attributes:
        features: As in `GaussianProcessState`.
        memory: The observations, with their contexts.
        logs: As in `GaussianProcessState`.
        relevance: Logarithms of factors on the inputs, float64[d + H]: the context's columns, then the features.
        unit: As in `GaussianProcessState`.
        posterior: Posterior in terms of inputs.
        networks: One network, whose last hidden layer gives the features; zeros before the first observation.
        noise_share: Noise share that it was trained with.
        scale: Factor on the features that gives them the spread of encoded contexts, float64[].
    """

    features: Float64
    memory: Memory
    logs: Float64
    relevance: Float64
    unit: Float64
    posterior: regression.Posterior
    networks: Networks
    noise_share: Noise
    scale: NDArray[np.float64]


class DeepKernelTS(GaussianProcessTS, frozen=True, kw_only=True, tag_field="type", tag="deep-kernel-ts"):
    """GP-TS whose kernel also sees features that a network has learnt: its last hidden layer.

    The network is trained on the rewards of the actions taken, as that of NeuralLinear-TS. Where that regresses on the
    features linearly, here a Gaussian process does, so that uncertainty grows away from observed features and, through
    the context, away from observed contexts. Before the first observation the kernel sees the context alone.

    One observation in five is held out from the network, and hyperparameters are learnt from these: on features that a
    network has fitted to the same rewards, a Gaussian process is overconfident.

    Args:
        hidden: Number of units of each hidden layer; those of the last are features. Few, since the kernel's distances
            add them up.
        recipe: Training recipe of the network.
        warm_start: Start from the network of the previous update instead of a random one.
    """

    hidden: tuple[int, ...] = (50, 10)
    recipe: Recipe = Recipe()
    warm_start: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._network()  # checks its options

    def init(self, problem: Problem) -> Any:
        """The prior."""
        blank = self._network().init(problem)
        prior = self._prior(problem, problem.width + self.hidden[-1])
        return DeepKernelState(*prior, blank.networks, blank.noise, np.array(1.0))

    def update(self, state: Any, observations: Observations, key: Key) -> Any:
        """The posterior after more observations: train the network, then infer on its features."""
        if not len(observations):
            return state
        n, new = len(state.memory.actions), len(observations)
        earlier = state.memory.rows(np.flatnonzero(~_held_out(0, n)))
        before = GreedyState(earlier, np.array(len(earlier.actions)), state.networks, state.noise_share)
        shown = observations[np.flatnonzero(~_held_out(n, new))]
        trained = self._network().update(before, shown, key.child("network"))
        kept = state.memory.append(observations, self.window, weights(observations, self.weighting))
        scale = _scale(trained.networks, kept.contexts)
        fresh = state._replace(networks=trained.networks, noise_share=trained.noise, scale=scale)
        return self._learn(fresh, kept, key)

    def inputs(self, state: Any, contexts: Float32) -> NDArray[Any]:
        """The context and the features, float64[N, d + H]."""
        return np.concatenate([contexts, state.scale * state.networks.hidden(contexts)[0]], axis=1)

    def _to_fit(self, n: int, key: Key) -> NDArray[np.int64]:
        """Hyperparameters are learnt from observations that the network has not seen, if there are enough."""
        held_out = np.flatnonzero(_held_out(0, n))
        return super()._to_fit(n, key) if len(held_out) < _FEWEST else held_out[-self.fit_limit :]

    def _network(self) -> NeuralGreedy:
        try:
            return NeuralGreedy(
                hidden=self.hidden,
                recipe=self.recipe,
                warm_start=self.warm_start,
                window=self.window,
                weighting=self.weighting,
            )
        except InvalidOption as error:
            raise InvalidOption(str(error).replace("NeuralGreedy", "DeepKernelTS")) from error


def _held_out(start: int, count: int) -> NDArray[np.bool_]:
    """Which of `count` observations from number `start` on the network does not see: one in five."""
    held_out: NDArray[np.bool_] = np.arange(start, start + count) % 5 == 4
    return held_out


def _scale(networks: Networks, contexts: Float32) -> NDArray[np.float64]:
    """The factor that makes the mean square distance of features that of as many columns in [0, 1].

    Training leaves the size of a hidden layer arbitrary, and the kernel's length scales start at the columns'.
    """
    hidden = networks.hidden(contexts)[0]
    squared = 2 * float(hidden.var(axis=0).sum())
    return np.array(np.sqrt(hidden.shape[1] / 4 / squared) if squared > 1e-12 else 1.0)
