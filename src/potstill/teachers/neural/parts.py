"""Statistics and samples of observations that are outside memory, read part by part."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.problem import Observations
from potstill.teachers.contract import Parts
from potstill.teachers.memory import Memory, Weighting, weights
from potstill.teachers.neural.network import Units, standard


class Overview(NamedTuple):
    """Statistics from one pass over all observations.

    Attributes:
        rows: Number of rows of each part, int64[P].
        units: Units in which all rewards have mean 0 and standard deviation 1.
        weight: Mean weight, which normalises weights.
    """

    rows: NDArray[np.int64]
    units: Units
    weight: float


def scan(parts: Parts, weighting: Weighting) -> Overview:
    """Count the observations and compute the units of their rewards and weights, in one pass."""
    n, means, squares, weight = np.array(list(parts.each(_moments, weighting))).reshape(-1, 4).T
    total = max(float(n.sum()), 1.0)
    mean = float(n @ means) / total
    # Total variance = within parts (squares about each part's mean) + between the means of parts.
    variance = float(squares.sum() + n @ (means - mean) ** 2) / total
    return Overview(n.astype(np.int64), standard(mean, variance**0.5), float(weight.sum()) / total)


def gather(parts: Parts, overview: Overview, rows: NDArray[np.int64], weighting: Weighting) -> Memory:
    """Fetch observations by their positions among all parts.

    Args:
        parts: All observations.
        overview: Statistics of all observations.
        rows: Positions in ascending order.
        weighting: Weighting of observations.
    """
    ends = np.cumsum(overview.rows)
    of_parts = np.split(rows, np.searchsorted(rows, ends[:-1]))
    wanted = [positions - start for positions, start in zip(of_parts, ends - overview.rows, strict=True)]
    found = list(parts.each(_take, wanted, weighting, overview.weight))
    return Memory(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))


def part_memory(observations: Observations, weighting: Weighting, weight: float) -> Memory:
    """One part as a memory, with weights normalised by the mean weight of all parts."""
    normalised = weights(observations, weighting) / weight
    return Memory(observations.contexts, observations.actions, observations.rewards, normalised)


def _moments(
    number: int,  # noqa: ARG001
    observations: Observations,
    weighting: Weighting,
) -> tuple[int, float, float, float]:
    """Number of rewards, their mean, the sum of squares about the mean, and the sum of weights."""
    rewards = observations.rewards
    if not len(rewards):
        return 0, 0.0, 0.0, 0.0
    mean = float(rewards.mean())
    squares = float(((rewards - mean) ** 2).sum())
    return len(rewards), mean, squares, float(weights(observations, weighting).sum())


def _take(
    number: int, observations: Observations, wanted: list[NDArray[np.int64]], weighting: Weighting, weight: float
) -> Memory:
    return part_memory(observations, weighting, weight).rows(wanted[number])
