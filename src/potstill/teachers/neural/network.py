"""The regression network of the neural teachers: context in, one predicted reward per action out.

For numbers the outputs are coefficients of functions of the action instead.

Networks come in stacks of B: an ensemble trains as one program, and a single network is a stack of one. A stack is
plain float64 arrays that predict rewards in their original units. The module `train` (JAX) trains them in float32 on
standardised rewards, and is imported only for training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key

Array = NDArray[Any]
Float64 = NDArray[np.float64]

#: Rows per forward pass: bounds the memory for hidden layers to about 100 MB.
CHUNK = 65_536
#: A layer is dead if its mean squared weight, relative to random weights, is below this. In networks trained on 100
#: observations it was 0.001 or more.
_DEAD = 1e-6


class Networks(NamedTuple):
    """B networks of equal shape, with ReLU between layers.

    Attributes:
        weights: Weights of each layer, float64[B, inputs, outputs].
        biases: Biases of each layer, float64[B, outputs].
    """

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]

    def hidden(self, contexts: Array) -> Array:
        """The last hidden layer, float64[B, N, H], for contexts [N, d]."""
        x = np.broadcast_to(contexts.astype(self.weights[0].dtype), (self.size, *contexts.shape))
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = np.maximum(x @ weight + bias[:, None], 0.0)
        return x

    def predict(self, contexts: Array) -> Array:
        """The predicted reward of each action, float64[B, N, K], for contexts [N, d]."""
        return self.hidden(contexts) @ self.weights[-1] + self.biases[-1][:, None]

    def predict_taken(self, contexts: Array, actions: Array) -> Array:
        """The predicted reward of the action taken in each context, float64[B, N]; for `actions` see `Data`."""
        predicted = self.predict(contexts)
        if actions.ndim == 2:
            return np.asarray(np.einsum("bnk,nk->bn", predicted, actions))
        return np.take_along_axis(predicted, actions[None, :, None].astype(np.int64), axis=2)[:, :, 0]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of context columns, of units of each hidden layer, and of actions."""
        return (self.weights[0].shape[1], *(weight.shape[2] for weight in self.weights))

    @property
    def size(self) -> int:
        """B, the number of networks."""
        return len(self.weights[0])

    @property
    def dead(self) -> NDArray[np.bool_]:
        """Which networks have a layer with vanishing weights, hence vanishing gradients, bool[B]."""
        against_random = [(w**2).mean(axis=(1, 2)) * w.shape[1] / 2 for w in self.weights if w.size]
        alive: NDArray[np.bool_] = np.min(against_random, axis=0) >= _DEAD
        return ~alive  # NaN counts as dead

    def map(self, function: Callable[[Array], Array]) -> Networks:
        """The networks with a function applied to each array."""
        return Networks(tuple(map(function, self.weights)), tuple(map(function, self.biases)))

    def in_units(self, units: Units) -> Networks:
        """The networks with outputs mapped from standardised rewards y to shift + scale·y."""
        weight, bias = self.weights[-1] * units.scale, self.biases[-1] * units.scale + units.shift
        return Networks((*self.weights[:-1], weight), (*self.biases[:-1], bias))


class Start(NamedTuple):
    """The starting point of training.

    Attributes:
        networks: Networks for standardised rewards.
        new: Share of the observations that they were not trained on, above 0.
        noise: Noise variance, which sets the weight of the prior on network weights.
    """

    networks: Networks
    new: float = 1.0
    noise: float = 0.0


class Data(NamedTuple):
    """Training data of B networks; `targets` and `weights` are per network.

    Attributes:
        contexts: Encoded contexts, [N, d].
        actions: Positions of actions among the outputs, int[N]; or factors of the outputs, float[N, K], whose sum with
            them is the reward.
        targets: Standardised rewards, [B, N].
        weights: Observation weights, [B, N].
    """

    contexts: Array
    actions: Array
    targets: Array
    weights: Array

    def rows(self, chosen: Array) -> Data:
        """A subset of the observations, by distinct positions in ascending order."""
        if len(chosen) == len(self.actions):
            return self
        return Data(self.contexts[chosen], self.actions[chosen], self.targets[:, chosen], self.weights[:, chosen])


class Units(NamedTuple):
    """Shift and scale between rewards and standardised rewards."""

    shift: float
    scale: float

    def standardise(self, rewards: Float64) -> Float64:
        """Rewards in standardised units."""
        return (rewards - self.shift) / self.scale

    def inverse(self) -> Units:
        """The inverse transformation."""
        return Units(-self.shift / self.scale, 1 / self.scale)


#: The identity: rewards are not standardised.
RAW = Units(0.0, 1.0)


def units_of(rewards: Float64) -> Units:
    """Units in which rewards have mean 0 and standard deviation 1; equal rewards are only shifted."""
    return standard(float(rewards.mean()), float(rewards.std()))


def standard(shift: float, scale: float) -> Units:
    """Units from a mean and a standard deviation."""
    # Equal rewards can have a deviation of some ulps from rounding. Below 1e-100 squares underflow.
    return Units(shift, scale if scale > max(1e-12 * abs(shift), 1e-100) else 1.0)


def zeros(sizes: tuple[int, ...], count: int) -> Networks:
    """Networks that predict 0 everywhere: before the first observation, all actions tie."""
    pairs = list(pairwise(sizes))
    return Networks(tuple(np.zeros((count, *pair)) for pair in pairs), tuple(np.zeros((count, o)) for _, o in pairs))


def random(sizes: tuple[int, ...], count: int, key: Key) -> Networks:
    """Random networks: He-normal weights (variance 2 / inputs), zero biases."""
    rng, blank = key.generator(), zeros(sizes, count)
    weights = (rng.standard_normal(w.shape) * np.sqrt(2 / max(w.shape[1], 1)) for w in blank.weights)
    return Networks(tuple(weights), blank.biases)


def revive(networks: Networks, fresh: Networks) -> Networks:
    """The networks, with dead ones replaced by fresh ones."""
    dead = networks.dead

    def either(old: Array, new: Array) -> Array:
        return np.where(dead.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    return Networks(
        tuple(map(either, networks.weights, fresh.weights)), tuple(map(either, networks.biases, fresh.biases))
    )


def chunks(n: int, networks: int = 1) -> Iterator[slice]:
    """Slices that cover n rows (at least one slice), each small enough for a forward pass of `networks` networks."""
    step = max(1, CHUNK // networks)
    for start in range(0, max(n, 1), step):
        yield slice(start, min(start + step, n))
