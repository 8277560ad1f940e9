"""Maximisers of posterior draws over an interval: on a grid, then the top of a parabola through three grid points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.teachers.continuous.basis import Axis, NeedsInterval, cosines
from potstill.teachers.contract import Exactness, Float32, Float64
from potstill.teachers.joint_normal import cholesky_root

#: Grid points per basis function: about eight in each half wave of the fastest cosine.
_POINTS = 8
#: Rewards on the grid that are in memory at once: 4 MB, which processor caches hold.
_CHUNK = 1_000_000


class SampledMaximisers(NeedsInterval):
    """Mixin for teachers with options `size`, of the basis, and `draws`, whose labels are shares of maximisers."""

    size: int
    draws: int

    @property
    def exactness(self) -> Exactness:
        """Sampled: a share of `draws` has a standard error of at most ½/√draws."""
        return Exactness("sampled", draws=self.draws, standard_error=0.5 / self.draws**0.5)

    def _check_sampling(self) -> None:
        if self.size < 3:
            self._refuse("size", "at least 3")
        if self.draws < 1:
            self._refuse("draws", "at least 1")

    def _refuse(self, field: str, expected: str) -> None:
        raise InvalidOption(f"{type(self).__name__}: {field} must be {expected}, got {getattr(self, field)!r}")


class Coefficients(NamedTuple):
    """Posterior of the coefficients of the reward on the action basis in each of N contexts: multivariate Student-t.

    Attributes:
        mean: Means, float64[N, size].
        covariance: Covariances for a noise variance of 1, float64[N, size, size].
        alpha: Shape of the noise variance.
        beta: Scale of the noise variance.
    """

    mean: Float64
    covariance: Float64
    alpha: float
    beta: float


class Goal(NamedTuple):
    """What is maximised, for the standardised outcome f at G grid points: factor·f + shift, float32[G] each."""

    factor: Float32
    shift: Float32


def goal(axis: Axis, unit: Float64, points: int) -> Goal | None:
    """The goal on an even grid, for outcomes with this mean and standard deviation; None if it is the reward."""
    (mean, scale), parts = unit, axis.goal(np.linspace(0, 1, points))
    if parts is None:
        return None
    coefficient, constant = parts
    return Goal((scale * coefficient).astype(np.float32), (mean * coefficient + constant).astype(np.float32))


def of_contexts(given: Iterable[Coefficients], axis: Axis, unit: Float64, n: int, key: Key) -> Iterator[Float64]:
    """Positions of the maximisers of n independent draws in each context, in chunks of contexts."""
    rng = key.generator()
    for part in given:
        yield from maximisers(part, n, rng, goal(axis, unit, _points(part.mean.shape[1])))


def _points(size: int) -> int:
    return _POINTS * size + 1


def maximisers(given: Coefficients, n: int, rng: np.random.Generator, wanted: Goal | None = None) -> Iterator[Float64]:
    """Positions of the maximisers of n independent draws in each context, float64[C, n] for chunks of C contexts."""
    size = given.mean.shape[1]
    # The constant of the basis does not move the maximum of the reward itself.
    used = slice(1 if wanted is None else 0, None)
    mean, root = given.mean[:, used].astype(np.float32), cholesky_root(given.covariance[:, used, used])
    basis = np.ascontiguousarray(cosines(np.linspace(0, 1, _points(size)), size)[:, used].T, np.float32)
    step = max(1, _CHUNK // (n * basis.shape[1]))
    for start in range(0, len(mean), step):
        rows = slice(start, start + step)
        normal = rng.standard_normal((len(mean[rows]), n, mean.shape[1]), dtype=np.float32)
        normal *= np.sqrt(given.beta / rng.standard_gamma(given.alpha, (*normal.shape[:2], 1))).astype(np.float32)
        drawn = normal @ root[rows].astype(np.float32).swapaxes(1, 2)
        drawn += mean[rows, None]
        yield tops(reached(drawn.reshape(-1, mean.shape[1]) @ basis, wanted)).reshape(-1, n)


def reached(outcomes: NDArray[Any], wanted: Goal | None) -> NDArray[Any]:
    """What is maximised, for standardised outcomes on the grid, [M, G]."""
    return outcomes if wanted is None else outcomes * wanted.factor + wanted.shift


def tops(rewards: NDArray[np.floating[Any]]) -> Float64:
    """Positions from 0 to 1 of the maxima of rewards on an even grid, [M, G]: float64[M]."""
    last, rows = rewards.shape[1] - 1, np.arange(len(rewards))
    best = rewards.argmax(axis=1)
    middle = np.clip(best, 1, last - 1)
    left, centre, right = (rewards[rows, middle + i].astype(np.float64) for i in (-1, 0, 1))
    bend = left - 2 * centre + right
    shift = np.divide(left - right, 2 * bend, out=np.zeros_like(bend), where=bend < 0)
    # A maximum at an end of the interval has its parabola beside it: it may move inwards only.
    place = np.where((bend < 0) | (best == middle), middle + shift, best)
    return np.asarray(np.clip(place, np.maximum(best - 0.5, 0), np.minimum(best + 0.5, last)) / last)


def shares(units: Float64, bins: int) -> Float32:
    """Shares of positions float64[N, n] in each bin, float32[N, bins]. Bins have equal widths on the scale."""
    places = np.minimum((units * bins).astype(np.int64), bins - 1)
    flat = places + bins * np.arange(len(units))[:, None]
    counts = np.bincount(flat.ravel(), minlength=bins * len(units)).reshape(len(units), bins)
    shared: Float32 = (counts / units.shape[1]).astype(np.float32)
    return shared


def labels(axis: Axis, found: Iterator[Float64]) -> Float32:
    """The share of maximisers in each bin, float32[N, bins], from chunks of positions."""
    bins = int(axis.bins)
    return np.concatenate([np.zeros((0, bins), np.float32), *(shares(units, bins) for units in found)])


def actions(axis: Axis, found: Iterator[Float64], n: int) -> Float64:
    """Maximisers as actions, float64[N, n], from chunks of positions."""
    return axis.space.from_unit(np.concatenate([np.zeros((0, n)), *found]))
