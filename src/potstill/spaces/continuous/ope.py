"""Off-policy evaluation of numbers: exact density ratios, and kernels where a target has no density.

A target that gives one number per row is smoothed: its number is replaced by a distribution around it, on the scale of
the space (Kallus & Zhou 2018, "Policy evaluation and optimization with continuous treatments"). The estimate is then
that of the smoothed target, exactly; what smoothing changes is a bias that grows with the bandwidth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from potstill.errors import InvalidModel, InvalidOption
from potstill.spaces.continuous.head import HistogramDistribution
from potstill.spaces.continuous.kernel_estimators import KERNELS
from potstill.spaces.continuous.space import Continuous
from potstill.spaces.contract import Actions, Bool, Distribution, Float32, Float64, RewardPredictions
from potstill.spaces.ope import GeneralOffPolicy, SharedRidge, crossed
from potstill.spaces.ridge import FOLDS, fold_rows

#: Bandwidth where none is chosen, as a share of the scale.
BANDWIDTH = 0.05
#: Cells of the scale in which numbers count as logged.
CELLS = 16
#: Nodes of the expectation over a kernel.
_NODES = 15
_KERNEL = KERNELS["epanechnikov"]


@dataclass(frozen=True, eq=False)
class SmoothedNumbers:
    """A kernel around one number per row, on the scale of the space, cut off where a row allows no more.

    Attributes:
        space: The action space.
        centres: Positions on the scale, float64[N].
        bandwidth: Half the width of the kernel, as a share of the scale.
        ends: First and last allowed position of each row, float64[N, 2].
    """

    space: Continuous
    centres: Float64
    bandwidth: float
    ends: Float64

    def draw(self, u: Float64) -> Actions:
        """Numbers float64[N], by the inverse distribution function of the kernel."""
        lower, upper = self._below(self.ends[:, 0]), self._below(self.ends[:, 1])
        between = lower + u[:, 0] * (upper - lower)
        places = self.centres + self.bandwidth * 2 * np.sin(np.arcsin(2 * between - 1) / 3)
        return self.space.from_unit(places.clip(self.ends[:, 0], self.ends[:, 1]))

    def propensity(self, actions: Actions) -> Float64:
        """The density of one number per row."""
        places = self.space.unit(actions)
        inside = self._below(self.ends[:, 1]) - self._below(self.ends[:, 0])
        density = _KERNEL.density((places - self.centres) / self.bandwidth) / (self.bandwidth * inside)
        allowed = (places >= self.ends[:, 0]) & (places <= self.ends[:, 1])
        return np.where(allowed, density * self.space.stretch(actions), 0.0)

    def drawn(self, u: Float64, actions: Actions, tolerance: float | Float64) -> Bool:
        """Whether `u` draws these numbers, up to the tolerance."""
        close: Bool = np.abs(self.draw(u) - actions) <= tolerance
        return close

    def nodes(self) -> Iterator[tuple[Actions, Float64]]:
        """Numbers at equally probable steps of the kernel."""
        for step in (np.arange(_NODES) + 0.5) / _NODES:
            yield self.draw(np.full((len(self.centres), 1), step)), np.full(len(self.centres), 1 / _NODES)

    def _below(self, places: Float64) -> Float64:
        return _KERNEL.below((places - self.centres) / self.bandwidth)


@dataclass(frozen=True, eq=False)
class LinearPredictions:
    """A regression that is linear in the features of the action, with the coefficients of each row.

    Attributes:
        space: The action space.
        intercepts: Prediction without the features of the action, float64[n].
        slopes: Coefficients of the features, float64[n, e].
        bounds: Smallest and largest possible reward.
    """

    space: Continuous
    intercepts: Float64
    slopes: Float64
    bounds: tuple[float, float]

    def at(self, actions: Actions) -> Float64:
        """The predicted reward of one number per row."""
        found: Float64 = self.intercepts + np.einsum("ne,ne->n", self.slopes, self.space.embed(actions))
        return found.clip(*self.bounds)

    def expected(self, distribution: Distribution) -> Float64:
        """The sum over bins, or over the nodes of another distribution."""
        if isinstance(distribution, HistogramDistribution) and len(distribution.lower) == 1:
            every = self.intercepts[:, None] + self.slopes @ self.space.embed(self.space.middles).T
            summed: Float64 = np.einsum("nb,nb->n", distribution.p, every.clip(*self.bounds))
            return summed
        total = np.zeros(len(self.slopes))
        for actions, weights in distribution.nodes():
            total += weights * self.at(actions)
        return total


class NumberSupport:
    """Which cells of the scale hold logged numbers. Cells are wide, so that few rows leave none empty by chance."""

    def __init__(self, space: Continuous) -> None:
        self._space, self.logged = space, np.zeros(CELLS, bool)

    def add(self, actions: Actions) -> None:
        """Record logged numbers."""
        self.logged[self._cells(actions)] = True

    def missing(self, distribution: Distribution, rows: int) -> Float64:
        """The probability of numbers in cells without any logged number."""
        total = np.zeros(rows)
        for actions, weights in () if self.logged.all() else distribution.nodes():
            total += np.where(self.logged[self._cells(actions)], 0.0, weights)
        return total

    def _cells(self, actions: Actions) -> Any:
        return np.minimum((self._space.unit(actions) * CELLS).astype(np.int64), CELLS - 1)


class ContinuousOffPolicy(GeneralOffPolicy):
    """Distributions are densities; numbers without one are smoothed by a kernel.

    Attributes:
        bandwidth: Half the width of the kernel, as a share of the scale.
    """

    def __init__(self, space: Continuous, bandwidth: float = BANDWIDTH) -> None:
        super().__init__(space)
        if not 0 < bandwidth <= 1:
            raise InvalidOption(f"bandwidth must be a share of the scale, above 0 and at most 1, got {bandwidth!r}")
        self._continuous, self.bandwidth = space, bandwidth

    def smoothed(self, bandwidth: float) -> ContinuousOffPolicy:
        """The same with another bandwidth."""
        return ContinuousOffPolicy(self._continuous, bandwidth)

    def support(self) -> NumberSupport:
        """The cells of the scale that hold logged numbers."""
        return NumberSupport(self._continuous)

    def permits(self, actions: Actions, allowed: Float64) -> Bool:
        """Whether the interval holds the number."""
        permitted: Bool = (actions >= allowed[:, 0]) & (actions <= allowed[:, 1])
        return permitted

    def unrestricted(self, rows: int) -> Float64:
        """The whole interval."""
        return np.tile([self._continuous.low, self._continuous.high], (rows, 1))

    def distribution(
        self, answer: Any, rows: int, allowed: Float64 | None, *, name: str, first_row: int
    ) -> Distribution:
        """Distributions unchanged; numbers smoothed, each first moved to the nearest that its row allows."""
        if hasattr(answer, "propensity") and hasattr(answer, "nodes"):
            given: Distribution = answer
            return given
        numbers = self._actions(answer, rows, name, first_row)
        ends = self._continuous.unit(self.unrestricted(rows) if allowed is None else allowed)
        centres = self._continuous.unit(numbers).clip(ends[:, 0], ends[:, 1])
        return SmoothedNumbers(self._continuous, centres, self.bandwidth, ends)

    def predictions(
        self, model: Any, contexts: Float32, first_row: int, bounds: tuple[float, float]
    ) -> RewardPredictions:
        """Those of the space's own regression by its coefficients; others one number at a time."""
        if not isinstance(model, SharedRidge):
            return super().predictions(model, contexts, first_row, bounds)
        count = self._features
        steps = np.concatenate([np.zeros((1, count)), np.eye(count)]).astype(np.float32)
        found = np.empty((len(contexts), count + 1))
        for fold in range(FOLDS):
            rows = fold_rows(first_row, fold)
            for k, step in enumerate(steps):
                features = np.repeat(step[None], len(contexts[rows]), axis=0)
                found[rows, k] = model.ridge.predict(crossed(contexts[rows], features), fold)[:, 0]
        if not np.isfinite(found).all():
            raise InvalidModel(f"the reward model must be finite in the rows from {first_row} on")
        return LinearPredictions(self._continuous, found[:, 0], found[:, 1:] - found[:, :1], bounds)


def off_policy(space: Continuous) -> ContinuousOffPolicy:
    """Off-policy evaluation on a continuous space."""
    return ContinuousOffPolicy(space)
