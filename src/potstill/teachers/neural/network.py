"""The regression network that neural teachers share: context in, one predicted reward per action out.

Networks come in stacks of B, so that an ensemble is trained as one program and a single network is a stack of one. A
stack is plain float64 arrays that predict rewards in their own units; `training` (JAX) trains them in float32 on
standardised rewards, and is imported only when there is something to train.
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

#: Rows that go through a network at once: bounds the memory for hidden layers to about 100 MB.
CHUNK = 65_536
#: A layer is dead if its squared weights are smaller than this against random ones; of a network that has learnt
#: something from 100 observations they were 0.001 and more.
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
        """The reward of each action, float64[B, N, K], for contexts [N, d]."""
        return self.hidden(contexts) @ self.weights[-1] + self.biases[-1][:, None]

    def taken(self, contexts: Array, actions: Array) -> Array:
        """The reward of the action that was taken in each context, float64[B, N]."""
        predicted = self.predict(contexts)
        return np.take_along_axis(predicted, actions[None, :, None].astype(np.int64), axis=2)[:, :, 0]

    @property
    def sizes(self) -> tuple[int, ...]:
        """Columns of a context, units of each hidden layer, actions."""
        return (self.weights[0].shape[1], *(weight.shape[2] for weight in self.weights))

    @property
    def size(self) -> int:
        """B, the number of networks."""
        return len(self.weights[0])

    @property
    def dead(self) -> NDArray[np.bool_]:
        """Which of them have a layer that has shrunk to nothing, from where hardly a gradient leads back, bool[B]."""
        against_random = [(w**2).mean(axis=(1, 2)) * w.shape[1] / 2 for w in self.weights if w.size]
        alive: NDArray[np.bool_] = np.min(against_random, axis=0) >= _DEAD
        return ~alive  # also those that are not numbers

    def map(self, function: Callable[[Array], Array]) -> Networks:
        """The networks with a function applied to each array."""
        return Networks(tuple(map(function, self.weights)), tuple(map(function, self.biases)))

    def in_units(self, units: Units) -> Networks:
        """The same networks where a reward of 0 and 1 mean `shift` and `shift + scale`."""
        weight, bias = self.weights[-1] * units.scale, self.biases[-1] * units.scale + units.shift
        return Networks((*self.weights[:-1], weight), (*self.biases[:-1], bias))


class Start(NamedTuple):
    """Where training starts.

    Attributes:
        networks: Networks that predict standardised rewards.
        new: The share of the observations that they have not learnt from, above 0.
        noise: Variance that their prior takes for noise.
    """

    networks: Networks
    new: float = 1.0
    noise: float = 0.0


class Data(NamedTuple):
    """What B networks learn from; `targets` and `weights` are each network's own.

    Attributes:
        contexts: [N, d].
        actions: [N].
        targets: Standardised rewards, [B, N].
        weights: How much each observation counts, [B, N].
    """

    contexts: Array
    actions: Array
    targets: Array
    weights: Array

    def rows(self, chosen: Array) -> Data:
        """Some of the observations, by their positions, which go up."""
        if len(chosen) == len(self.actions):
            return self
        return Data(self.contexts[chosen], self.actions[chosen], self.targets[:, chosen], self.weights[:, chosen])


class Units(NamedTuple):
    """The origin and the unit of standardised rewards, in rewards."""

    shift: float
    scale: float

    def standardise(self, rewards: Float64) -> Float64:
        """Rewards in these units."""
        return (rewards - self.shift) / self.scale

    def inverse(self) -> Units:
        """The units that lead back."""
        return Units(-self.shift / self.scale, 1 / self.scale)


#: Rewards as they are.
RAW = Units(0.0, 1.0)


def units_of(rewards: Float64) -> Units:
    """Units in which rewards have mean 0 and standard deviation 1; rewards that are all alike keep their unit."""
    return standard(float(rewards.mean()), float(rewards.std()))


def standard(shift: float, scale: float) -> Units:
    """The same, of rewards with a mean and a standard deviation."""
    # Rounding leaves a deviation of some ulps where there is none; and below 1e-100 squares underflow.
    return Units(shift, scale if scale > max(1e-12 * abs(shift), 1e-100) else 1.0)


def zeros(sizes: tuple[int, ...], count: int) -> Networks:
    """Networks that predict 0 for everything: before the first observation, no action is preferred."""
    pairs = list(pairwise(sizes))
    return Networks(tuple(np.zeros((count, *pair)) for pair in pairs), tuple(np.zeros((count, o)) for _, o in pairs))


def random(sizes: tuple[int, ...], count: int, key: Key) -> Networks:
    """Networks at random: He's normal weights (variance 2 / inputs), no bias."""
    rng, blank = key.generator(), zeros(sizes, count)
    weights = (rng.standard_normal(w.shape) * np.sqrt(2 / max(w.shape[1], 1)) for w in blank.weights)
    return Networks(tuple(weights), blank.biases)


def revived(networks: Networks, fresh: Networks) -> Networks:
    """The networks, with fresh ones instead of those that are dead."""
    dead = networks.dead

    def either(old: Array, new: Array) -> Array:
        return np.where(dead.reshape(-1, *[1] * (old.ndim - 1)), new, old)

    return Networks(
        tuple(map(either, networks.weights, fresh.weights)), tuple(map(either, networks.biases, fresh.biases))
    )


def chunks(n: int, networks: int = 1) -> Iterator[slice]:
    """Slices that cover n rows, at least one slice, each small enough to go through `networks` networks at once."""
    step = max(1, CHUNK // networks)
    for start in range(0, max(n, 1), step):
        yield slice(start, min(start + step, n))
