"""From scores or probabilities to actions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.teachers.contract import Float32


def split_ties(scores: NDArray[np.float64]) -> Float32:
    """Probability 1 on the largest score of each row, float32[N, K], split evenly between equals."""
    best = scores == scores.max(axis=1, keepdims=True)
    shared: Float32 = (best / best.sum(axis=1, keepdims=True)).astype(np.float32)
    return shared


def sample_rows(probabilities: Float32, n: int, key: Key) -> NDArray[np.int64]:
    """Draw n actions per row, int64[N, n], each with the row's probabilities."""
    cumulative = np.cumsum(probabilities, axis=1, dtype=np.float64)
    u = key.generator().random((len(probabilities), n)) * cumulative[:, -1:]
    actions: NDArray[np.int64] = (u[:, :, None] >= cumulative[:, None, :-1]).sum(axis=2)
    return actions
