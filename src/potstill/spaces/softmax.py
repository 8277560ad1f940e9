"""The softmax head: one output of the network per action."""

from __future__ import annotations

import msgspec
import numpy as np

from potstill.spaces.contract import Bool, Float32, Float64
from potstill.spaces.finite import FiniteDistribution, check_floor, mix_floor


class SoftmaxHead(msgspec.Struct, frozen=True):
    """Outputs are scores of actions; the distribution is their softmax over the eligible ones, then a floor."""

    outputs: int
    draws: int = 1
    kernel: str = "softmax"

    def check_floor(self, floor: object) -> None:
        """Reject a floor that is not a number from 0 to one over the number of actions."""
        check_floor(floor, self.outputs)

    def mask(self, allowed: Bool | None) -> Bool | None:
        """Outputs that matter where `allowed` is bool[N, K]: its own form."""
        return allowed

    def distribution(self, outputs: Float64, allowed: Bool | None, floor: float) -> FiniteDistribution:
        """Probabilities float32[N, K] of scores float64[N, K]; `allowed` is bool[N, K]."""
        return FiniteDistribution(softmax(outputs, allowed, floor))


def softmax(scores: Float64, eligible: Bool | None, floor: float) -> Float32:
    """Softmax over the eligible actions, then a floor, in float64; the result is rounded to float32[N, K].

    Restricting before the softmax equals renormalising after it, and still works when all eligible actions are
    improbable.
    """
    if eligible is not None:
        scores = np.where(eligible, scores, -np.inf)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    mixed: Float32 = mix_floor(p, eligible, floor).astype(np.float32)
    return mixed
