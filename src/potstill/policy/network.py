"""The student network at decision time, in NumPy: the reference for every other runtime.

The definition is float64 arithmetic on the file's float32 weights. Runtimes may compute in float32; `rounding_error` is
what that can cost, and `Policy.agreement` turns it into the precision that every runtime keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Activation = Literal["tanh", "relu"]

#: A value beyond the range of float32 is an overflow in every runtime, also in those that compute in float64.
LARGEST = float(np.finfo(np.float32).max)


class Layer(NamedTuple):
    """An affine layer: float32[inputs, outputs] and float32[outputs]."""

    weight: NDArray[Any]
    bias: NDArray[Any]


class _Activation(NamedTuple):
    """A function, and its slope as a function of its value."""

    value: Callable[[Float64], Float64]
    slope: Callable[[Float64], Float64]


ACTIVATIONS: dict[str, _Activation] = {
    "tanh": _Activation(np.tanh, lambda h: 1 - h * h),
    "relu": _Activation(lambda x: np.maximum(x, 0.0), lambda h: (h > 0).astype(np.float64)),
}


def outputs(layers: Sequence[Layer], activation: Activation, contexts: NDArray[Any]) -> Float64:
    """The outputs of the last layer, float64[N, K], for encoded contexts float32[N, d]; NaN after an overflow."""
    hidden = contexts.astype(np.float64)
    for layer in layers[:-1]:
        hidden = ACTIVATIONS[activation].value(_affine(layer, hidden))
    return _affine(layers[-1], hidden)


def masked_inputs(contexts: Float32, eligible: NDArray[np.bool_] | None, actions: int) -> Float32:
    """The inputs of a masked policy's network: encoded contexts, then 1 for each action that is not eligible."""
    absent = np.zeros((len(contexts), actions), np.float32) if eligible is None else (~eligible).astype(np.float32)
    return np.concatenate([contexts, absent], axis=1)


def rounding_error(layers: Sequence[Layer], activation: Activation, contexts: NDArray[Any]) -> Float64:
    """Error of the outputs of float32 arithmetic, float64[N, K], in units of 2⁻²⁴ and up to a small factor.

    A sum errs in proportion to the sum of its absolute terms. The errors of its inputs are independent, so their
    squares add up.
    """
    hidden = contexts.astype(np.float64)
    error = np.zeros_like(hidden)
    for layer in layers:
        weight, bias = (array.astype(np.float64) for array in layer)
        own = np.abs(hidden) @ np.abs(weight) + np.abs(bias)
        error = np.sqrt(own**2 + error**2 @ weight**2)
        if layer is not layers[-1]:
            hidden = ACTIVATIONS[activation].value(_affine(layer, hidden))
            error *= ACTIVATIONS[activation].slope(hidden)
    return error


def _affine(layer: Layer, x: Float64) -> Float64:
    y = x @ layer.weight + layer.bias
    return np.where(np.abs(y) <= LARGEST, y, np.nan)
