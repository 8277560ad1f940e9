"""Observations that are not in memory: what a network wants to know of them, part by part."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.problem import Observations
from potstill.teachers.contract import Parts
from potstill.teachers.memory import Memory
from potstill.teachers.network import Units, standard
from potstill.teachers.weighting import Weighting, weights


class Overview(NamedTuple):
    """What one pass over the observations tells.

    Attributes:
        rows: of each part, int64[P].
        units: in which all rewards have mean 0 and standard deviation 1.
    """

    rows: NDArray[np.int64]
    units: Units


def overview(parts: Parts) -> Overview:
    """Count the observations, and find the units of their rewards."""
    found = np.array(list(parts.each(_moments))).reshape(-1, 3)
    n, means, squares = found.T
    total = n.sum()
    mean = float(n @ means / total) if total else 0.0
    # Sums of squares about each part's own mean: what is left over is how far the means are apart.
    variance = float((squares.sum() + n @ (means - mean) ** 2) / total) if total else 0.0
    return Overview(n.astype(np.int64), standard(mean, variance**0.5))


def gather(parts: Parts, rows: NDArray[np.int64], counts: NDArray[np.int64], weighting: Weighting) -> Memory:
    """Some of the observations, by their positions in all of them, in order.

    Args:
        parts: all observations.
        rows: the positions, going up.
        counts: how many observations each part has.
        weighting: how much each counts.
    """
    starts = np.concatenate([[0], np.cumsum(counts)])
    wanted = [
        found - start for found, start in zip(np.split(rows, np.searchsorted(rows, starts[1:-1])), starts, strict=False)
    ]
    found = list(parts.each(_some, wanted, weighting))
    return Memory(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))


def remembered(observations: Observations, weighting: Weighting) -> Memory:
    """Some observations by themselves."""
    return Memory(observations.contexts, observations.actions, observations.rewards, weights(observations, weighting))


def _moments(number: int, observations: Observations) -> tuple[int, float, float]:  # noqa: ARG001
    """How many rewards there are, their mean, and the sum of squares about it."""
    rewards = observations.rewards
    if not len(rewards):
        return 0, 0.0, 0.0
    mean = float(rewards.mean())
    return len(rewards), mean, float(((rewards - mean) ** 2).sum())


def _some(number: int, observations: Observations, wanted: list[NDArray[np.int64]], weighting: Weighting) -> Memory:
    return remembered(observations, weighting).rows(wanted[number])
