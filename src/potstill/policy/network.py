"""The student network at decision time, in NumPy: the definition that every other runtime is compared with."""

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


def logits(layers: Sequence[Layer], activation: Activation, contexts: Float32) -> Float32:
    """One score per action, float32[N, K], for encoded contexts float32[N, d]."""
    hidden = contexts
    for layer in layers[:-1]:
        hidden = ACTIVATIONS[activation](hidden @ layer.weight + layer.bias)
    return hidden @ layers[-1].weight + layers[-1].bias


def probabilities(logits: Float32, eligible: NDArray[np.bool_] | None, floor: float) -> Float32:
    """Softmax over the eligible actions, then a floor, float32[N, K].

    Restricting before the softmax is the same as renormalising after it, and keeps an answer when all eligible
    actions are improbable. The floor mixes with the uniform policy over the m eligible actions, (1 - m·floor)·p +
    floor, so that no eligible action is rarer than it.
    """
    if eligible is not None:
        logits = np.where(eligible, logits, np.float32(-np.inf))
    p: Float32 = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    if floor > 0:
        allowed = np.ones_like(p, bool) if eligible is None else np.broadcast_to(eligible, p.shape)
        share = np.float32(1) - allowed.sum(axis=-1, keepdims=True).astype(np.float32) * np.float32(floor)
        p = np.where(allowed, share * p + np.float32(floor), np.float32(0))
    return p


def choose(probabilities: Float32, u: NDArray[np.float64]) -> NDArray[np.int64]:
    """The inverse of the cumulative probabilities, taken in the order of the actions, at u: int64[N].

    The sum runs in float64 and u is scaled by its total, so that float32 rounding favours no action.
    """
    cumulative = np.cumsum(probabilities, axis=1, dtype=np.float64)
    passed: NDArray[np.int64] = (cumulative <= u[:, None] * cumulative[:, -1:]).sum(axis=1)
    # u < 1, yet u·total may round up to the total: then it is the last possible action.
    last = probabilities.shape[1] - 1 - np.argmax(probabilities[:, ::-1] > 0, axis=1)
    chosen: NDArray[np.int64] = np.minimum(passed, last)
    return chosen
