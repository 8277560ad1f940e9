"""Cross-fitted ridge regression from sums of products, for reward models of any space.

Rows fall into `FOLDS` folds by their number; the model of a fold has learnt from the other folds (cross-fitting, as in
Chernozhukov et al. 2018, "Double/debiased machine learning"). One pass over the rows collects sums of products for each
fold and group, so memory does not grow with the log. Each group has its own regression: a group is an action of a list,
or all rows where actions have features.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.spaces.contract import Float64

#: Row i is in fold i modulo this.
FOLDS = 5
#: Wider rows are projected at random to this many columns, which bounds the time ...
WIDEST = 256
#: ... and to fewer where there are many groups, so that all products stay within this many numbers (128 MB).
_NUMBERS = 1 << 24
#: Multiplications per BLAS call, few enough for one thread; OpenBLAS splits products of twice as many.
_ONE_THREAD = 1 << 17
#: A column counts as constant if its variance is a smaller share of its mean square: the rest is rounding.
_FLAT = 1e-12


class RegressionRows(NamedTuple):
    """Consecutive rows of a regression.

    Attributes:
        first_row: Number of the first row.
        inputs: Float[n, d].
        groups: Group of each row, int[n].
        rewards: Float64[n].
    """

    first_row: int
    inputs: NDArray[Any]
    groups: NDArray[Any]
    rewards: Float64


def pieces(rows: NDArray[Any], by: int) -> Float64:
    """Rows [n, m] in float64, in pieces [p, r, m] small enough that the product of one with [m, by] takes one thread.

    The last piece is padded with zeros. On a busy machine, synchronising threads after every short product took a
    hundred times as long as one thread.
    """
    count, width = rows.shape
    size = max(16, _ONE_THREAD // max(1, width * by))
    number = -(-count // size)
    cut = np.zeros((number * size, width))
    cut[:count] = rows
    return cut.reshape(number, size, width)


def fold_rows(first_row: int, fold: int) -> slice:
    """The rows of a block that are in a fold."""
    return slice((fold - first_row) % FOLDS, None, FOLDS)


@dataclass(frozen=True, eq=False)
class ColumnTransform:
    """Inputs as columns of order one in float64, with a last column of ones.

    The centre is that of the first block: close enough to the mean of all rows to avoid cancellation, and independent
    of how the log was cut.

    Attributes:
        centre: Subtracted from inputs, float64[d].
        mix: Random projection of wide inputs, float64[d, c]; None for others.
        scale: Divisor of each column, float64[c].
    """

    centre: Float64
    mix: Float64 | None
    scale: Float64

    @classmethod
    def like(cls, inputs: NDArray[Any], groups: int) -> ColumnTransform:
        """A transform fitted to these inputs, without scaling."""
        width, widest = inputs.shape[1], max(1, min(WIDEST, math.isqrt(_NUMBERS // (FOLDS * groups)) - 1))
        centre = inputs.mean(axis=0, dtype=np.float64)
        if width <= widest:
            return cls(centre, None, np.ones(width))
        signs = Key(0).child("reward model", width).generator().integers(0, 2, (width, widest))
        return cls(centre, (2.0 * signs - 1) / np.sqrt(widest), np.ones(widest))

    def __call__(self, inputs: NDArray[Any]) -> Float64:
        """Columns of inputs, float64[n, c + 1]."""
        columns = np.ones((len(inputs), len(self.scale) + 1))
        centred = inputs - self.centre
        np.divide(centred if self.mix is None else centred @ self.mix, self.scale, out=columns[:, :-1])
        return columns

    def on_inputs(self, coefficients: Float64) -> tuple[Float64, Float64]:
        """Coefficients of columns [F, G, c + 1] as those of inputs, [F, d, G], and a constant [F, G]."""
        slopes = (coefficients[..., :-1] / self.scale).swapaxes(1, 2)
        weights = slopes if self.mix is None else self.mix @ slopes
        return weights, coefficients[..., -1] - self.centre @ weights


@dataclass(frozen=True, eq=False)
class GramSums:
    """Sums over the rows of each fold and group; x are columns, y is the reward minus `offset`.

    Attributes:
        columns: How inputs became columns.
        offset: Mean reward of the first block.
        xx: Float64[F, G, c, c].
        xy: Float64[F, G, c].
        yy: Float64[F, G].
    """

    columns: ColumnTransform
    offset: float
    xx: Float64
    xy: Float64
    yy: Float64

    @classmethod
    def of(cls, rows: Iterable[RegressionRows], groups: int) -> GramSums:
        """The sums over all rows, in one pass; there must be at least one row."""
        sums = None
        for block in rows:
            if sums is None:
                sums = cls._zeros(block, groups)
            sums._add(block)
        assert sums is not None
        return sums._scaled()

    @classmethod
    def _zeros(cls, first: RegressionRows, groups: int) -> GramSums:
        columns = ColumnTransform.like(first.inputs, groups)
        shape, c = (FOLDS, groups), len(columns.scale) + 1
        offset = float(first.rewards.mean())
        return cls(columns, offset, np.zeros((*shape, c, c)), np.zeros((*shape, c)), np.zeros(shape))

    def _add(self, block: RegressionRows) -> None:
        folds, groups = self.yy.shape
        cells = (block.first_row + np.arange(len(block.rewards))) % folds * groups + block.groups
        order = np.argsort(cells, kind="stable")
        ends = np.searchsorted(cells[order], np.arange(self.yy.size + 1))
        for cell, (start, end) in enumerate(pairwise(ends)):
            rows = order[start:end]
            both = np.column_stack([self.columns(block.inputs[rows]), block.rewards[rows] - self.offset])
            cut = pieces(both, both.shape[1])
            products = (cut.swapaxes(1, 2) @ cut).sum(axis=0)
            at = divmod(cell, groups)
            self.xx[at] += products[:-1, :-1]
            self.xy[at] += products[:-1, -1]
            self.yy[at] += products[-1, -1]

    def _scaled(self) -> GramSums:
        """The sums of columns with standard deviation one; constant columns stay as they are."""
        total = self.xx.sum(axis=(0, 1))
        square, mean = np.diagonal(total)[:-1] / total[-1, -1], total[-1, :-1] / total[-1, -1]
        variance = square - mean**2
        scale = np.sqrt(np.where(variance <= _FLAT * square, 1, variance))
        by = np.append(scale, 1)
        return replace(self, columns=replace(self.columns, scale=scale), xx=self.xx / np.outer(by, by), xy=self.xy / by)

    def means(self) -> Float64:
        """The mean y of the rows outside each fold, float64[F]; that of a reward of 0 if there are none."""
        rows, totals = self.xx[:, :, -1, -1].sum(axis=1), self.xy[:, :, -1].sum(axis=1)
        others = rows.sum() - rows
        means: Float64 = np.where(others > 0, (totals.sum() - totals) / np.maximum(others, 1), -self.offset)
        return means

    def solve(self, ridge: Float64) -> Float64:
        """Coefficients of y - mean on x from the rows outside each fold, under a penalty float64[c]; [F, G, c]."""
        xx, xy = self.xx.sum(axis=0) - self.xx, self.xy.sum(axis=0) - self.xy
        centred = xy - self.means()[:, None, None] * xx[..., -1]
        solved: Float64 = np.linalg.solve(xx + np.diag(ridge), centred[..., None])[..., 0]
        return solved

    def held_out(self, coefficients: Float64) -> Float64:
        """The summed squared errors of coefficients [F, G, c] on the rows of their own folds, float64[G]."""
        means = self.means()[:, None]
        rows, y = self.xx[..., -1, -1], self.xy[..., -1]
        left = self.xy - means[..., None] * self.xx[..., -1]
        fit = np.einsum("fkc,fkc->fk", coefficients, left)
        spread = np.einsum("fkc,fkcd,fkd->fk", coefficients, self.xx, coefficients, optimize=True)
        errors: Float64 = (self.yy - 2 * means * y + means**2 * rows - 2 * fit + spread).sum(axis=0)
        return errors


@dataclass(frozen=True, eq=False)
class FittedRidge:
    """A linear function of the inputs for each fold and group.

    Attributes:
        weights: Coefficients of inputs, float64[F, d, G].
        constants: Intercepts, float64[F, G].
        penalties: The penalty chosen for each group.
    """

    weights: Float64
    constants: Float64
    penalties: tuple[float, ...]

    def predict(self, inputs: NDArray[Any], fold: int) -> Float64:
        """The reward of each group, float64[n, G]."""
        groups = self.constants.shape[1]
        cut = (pieces(inputs, groups) @ self.weights[fold]).reshape(-1, groups)
        predicted: Float64 = cut[: len(inputs)] + self.constants[fold]
        return predicted


def fit_ridge(rows: Iterable[RegressionRows], groups: int, penalties: Sequence[float], prior: float) -> FittedRidge:
    """Ridge regressions of the reward on inputs and an intercept, one for each fold and group.

    Args:
        rows: All rows, in blocks.
        groups: Number of groups.
        penalties: Candidates for the penalty on squared coefficients, in rows; each group uses the one with the
            smallest held-out error.
        prior: Weight of the mean of all groups relative to a group's own mean, in rows.
    """
    sums = GramSums.of(rows, groups)
    slopes = np.ones(len(sums.columns.scale))
    solved = np.stack([sums.solve(np.append(penalty * slopes, prior)) for penalty in penalties])
    best = np.argmin([sums.held_out(coefficients) for coefficients in solved], axis=0)
    chosen = solved[best, :, np.arange(len(best))].swapaxes(0, 1)
    weights, constants = sums.columns.on_inputs(chosen)
    means = sums.offset + sums.means()
    return FittedRidge(weights, constants + means[:, None], tuple(penalties[i] for i in best))
