"""The distribution over actions of a policy in some contexts, also where the action is a number."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from potstill.policy import Policy
from potstill.problem import Continuous
from potstill.spaces import FiniteSpace

Float64 = NDArray[np.float64]
#: Bins that the histogram of a number is shown in.
BINS = 16


def labels(policy: Policy) -> list[str]:
    """Names of what `shares` has a column for: the actions, or parts of the interval of a number."""
    space = policy.problem.actions
    if isinstance(space, FiniteSpace):
        return [str(label) for label in space.labels]
    if not isinstance(space, Continuous):
        return []
    edges = np.asarray(space.head().edges)[_starts(len(space.head().edges) - 1)]
    return [f"{low:.4g} to {high:.4g}" for low, high in zip(edges, [*edges[1:], space.high], strict=True)]


def shares(policy: Policy, contexts: Any, allowed: Any = None, floor: float | None = None) -> Float64:
    """Probabilities float64[N, K]: of actions, or of parts of the interval of a number; K is 0 for other spaces."""
    distribution: Any = policy.distribution(contexts, eligible=allowed, floor=floor)
    space = policy.problem.actions
    if isinstance(space, Continuous):
        return np.add.reduceat(distribution.p, _starts(distribution.p.shape[1]), axis=1)
    if isinstance(space, FiniteSpace):
        return np.asarray(policy.probabilities_many(contexts, eligible=allowed, floor=floor), np.float64)
    return np.zeros((len(contexts), 0))


def place(space: Continuous, numbers: NDArray[np.floating]) -> NDArray[np.int64]:
    """The part of the interval that each number is in."""
    edges = np.asarray(space.head().edges)
    return np.searchsorted(edges[_starts(len(edges) - 1)[1:]], numbers, side="right").astype(np.int64)


def _starts(bins: int) -> NDArray[np.int64]:
    """The first bin of each part."""
    return np.unique(np.linspace(0, bins, min(BINS, bins), endpoint=False).astype(np.int64))
