"""Observations that are not in memory: what a network wants to know of them, part by part."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.problem import Observations
from potstill.teachers.contract import Parts
from potstill.teachers.memory import Memory, Weighting, inverse_propensities, weights
from potstill.teachers.neural.network import Units, standard


class Overview(NamedTuple):
    """What one pass over the observations tells.

    Attributes:
        rows: Rows of each part, int64[P].
        units: Units in which all rewards have mean 0 and standard deviation 1.
        inverse: The mean of all inverse propensities, to which weights are relative.
    """

    rows: NDArray[np.int64]
    units: Units
    inverse: float


def overview(parts: Parts) -> Overview:
    """Count the observations, and find the units of their rewards and weights."""
    n, means, squares, inverse = np.array(list(parts.each(_moments))).reshape(-1, 4).T
    total = max(float(n.sum()), 1.0)
    mean = float(n @ means) / total
    # Sums of squares about each part's own mean: what is left over is how far the means are apart.
    variance = float(squares.sum() + n @ (means - mean) ** 2) / total
    return Overview(n.astype(np.int64), standard(mean, variance**0.5), float(inverse.sum()) / total)


def gather(parts: Parts, seen: Overview, rows: NDArray[np.int64], weighting: Weighting) -> Memory:
    """Some of the observations, by their positions in all of them, in order.

    Args:
        parts: All observations.
        seen: What they are like.
        rows: The positions, going up.
        weighting: How much each counts.
    """
    ends = np.cumsum(seen.rows)
    of_parts = np.split(rows, np.searchsorted(rows, ends[:-1]))
    wanted = [positions - start for positions, start in zip(of_parts, ends - seen.rows, strict=True)]
    found = list(parts.each(_some, wanted, weighting, seen.inverse))
    return Memory(*(np.concatenate(arrays) for arrays in zip(*found, strict=True)))


def remembered(observations: Observations, weighting: Weighting, inverse: float) -> Memory:
    """A part by itself, with the weights that it has in all of them."""
    counts = weights(observations, weighting, inverse)
    return Memory(observations.contexts, observations.actions, observations.rewards, counts)


def _moments(number: int, observations: Observations) -> tuple[int, float, float, float]:  # noqa: ARG001
    """How many rewards there are, their mean, the sum of squares about it, and the sum of inverse propensities."""
    rewards = observations.rewards
    if not len(rewards):
        return 0, 0.0, 0.0, 0.0
    mean = float(rewards.mean())
    squares = float(((rewards - mean) ** 2).sum())
    return len(rewards), mean, squares, float(inverse_propensities(observations).sum())


def _some(
    number: int, observations: Observations, wanted: list[NDArray[np.int64]], weighting: Weighting, inverse: float
) -> Memory:
    return remembered(observations, weighting, inverse).rows(wanted[number])
