"""The student network at decision time, in NumPy: the reference for every other runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Activation = Literal["tanh", "relu"]


class Layer(NamedTuple):
    """An affine layer: float32[inputs, outputs] and float32[outputs]."""

    weight: Float32
    bias: Float32


def _relu(x: Float32) -> Float32:
    return np.maximum(x, np.float32(0))


ACTIVATIONS: dict[str, Callable[[Float32], Float32]] = {"tanh": np.tanh, "relu": _relu}


def outputs(layers: Sequence[Layer], activation: Activation, contexts: Float32) -> Float32:
    """The outputs of the last layer, float32[N, K], for encoded contexts float32[N, d]."""
    hidden = contexts
    for layer in layers[:-1]:
        hidden = ACTIVATIONS[activation](hidden @ layer.weight + layer.bias)
    return hidden @ layers[-1].weight + layers[-1].bias
