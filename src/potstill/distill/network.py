"""The student network while it is trained: its layers at the start, in JAX, and on contexts that are rescaled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.policy import Activation, Layer

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

#: A feature whose usual range is narrower than this is taken for a constant.
NARROWEST = 1e-3

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": jnp.tanh, "relu": jax.nn.relu}


def forward(layers: Sequence[Layer], activation: Activation, contexts: Array) -> Array:
    """The outputs of the last layer in JAX; `potstill.policy.network.outputs` is the same in NumPy."""
    *hidden, (weight, bias) = layers
    units = contexts
    for w, b in hidden:
        units = _ACTIVATIONS[activation](units @ w + b)
    return units @ weight + bias


def with_columns(hidden: Sequence[Layer], tower: Sequence[Layer], activation: Activation, items: Array) -> list[Layer]:
    """Hidden layers, and the output layer that an item tower makes of its inputs [K, i]."""
    columns: Any = forward(tower, activation, items)
    return [*hidden, Layer(columns[:, :-1].T, columns[:, -1])]


def random_layers(shapes: Sequence[tuple[int, int]], key: Key) -> list[Layer]:
    """Layers with normal weights of variance 1 / inputs, and biases of zero."""
    rng = key.generator()
    return [as_layer(rng.standard_normal((n, m)) / np.sqrt(max(n, 1)), np.zeros(m)) for n, m in shapes]


def constant_layer(inputs: int, bias: Float32) -> Layer:
    """A last layer that gives every context the outputs `bias`."""
    return as_layer(np.zeros((inputs, len(bias))), bias)


def as_layer(weight: Any, bias: Any) -> Layer:
    """A layer in float32."""
    return Layer(np.asarray(weight, np.float32), np.asarray(bias, np.float32))


class Rescaling(NamedTuple):
    """Maps the usual range of each feature onto [0, 1]: x ↦ (x - low) / width, with float64[d] of each.

    A feature that stays in a corner of its range, such as a bandwidth that is seldom near its limit, would otherwise
    be learnt late or never. Constants and rare indicators, whose usual range is a point, are left alone.
    """

    low: Float64
    width: Float64

    @classmethod
    def identity(cls, width: int) -> Rescaling:
        """Leaves contexts as they are."""
        return cls(np.zeros(width), np.ones(width))

    @classmethod
    def onto_unit(cls, contexts: Float32) -> Rescaling:
        """From the 5 % and 95 % quantiles of each feature."""
        low, high = np.quantile(contexts, [0.05, 0.95], axis=0, method="nearest").astype(np.float64)
        wide = high - low > NARROWEST
        return cls(np.where(wide, low, 0), np.where(wide, high - low, 1))

    def __call__(self, contexts: Float32) -> Float32:
        """Contexts, rescaled."""
        low, width = self.low.astype(np.float32), self.width.astype(np.float32)
        rescaled: Float32 = (contexts - low) / width
        return rescaled

    def enter(self, layers: Sequence[Layer]) -> list[Layer]:
        """Layers for rescaled contexts that do what `layers` do for plain ones."""
        (weight, bias), *rest = layers
        return [as_layer(weight * self.width[:, None], bias + self.low @ weight), *rest]

    def leave(self, layers: Sequence[Layer]) -> list[Layer]:
        """Layers for plain contexts that do what `layers` do for rescaled ones."""
        (weight, bias), *rest = [as_layer(*layer) for layer in layers]
        plain = weight / self.width[:, None]
        return [as_layer(plain, bias - self.low @ plain), *rest]
