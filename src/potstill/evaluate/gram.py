"""Sums of products over a log, per fold and action: all that a cross-fitted linear regression needs of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potstill.evaluate.blocks import numbered
from potstill.evaluate.log import Block, Log
from potstill.keys import Key

#: Row i is in fold i modulo this.
FOLDS = 5
#: Wider contexts are mixed at random down to so many columns, for the sake of time ...
WIDEST = 256
#: ... and to fewer yet where there are many actions, so that all products stay within so many numbers (128 MB).
_NUMBERS = 1 << 24
#: Multiplications that BLAS does without asking for help; OpenBLAS shares products from twice as many on.
_ONE_THREAD = 1 << 17
#: A column whose variance is a smaller share of its mean square than this does not vary: the rest is rounding.
_FLAT = 1e-12

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


def pieces(rows: NDArray[Any], by: int) -> Float64:
    """Rows [n, m] in float64, in pieces [p, r, m] small enough that the product of one with [m, by] takes one thread.

    The last piece is filled up with zeros. On a busy machine, threads that wait for each other at the end of every
    short product took a hundred times as long as one thread that does it all.
    """
    count, width = rows.shape
    size = max(16, _ONE_THREAD // max(1, width * by))
    number = -(-count // size)
    cut = np.zeros((number * size, width))
    cut[:count] = rows
    return cut.reshape(number, size, width)


@dataclass(frozen=True, eq=False)
class Columns:
    """Contexts as columns of order one in float64, with a last column of ones.

    The centre is that of a log's first block: near enough to the mean of all that products of large numbers do not
    drown their differences, and the same however the log was cut.

    Attributes:
        centre: float64[d], taken off contexts.
        mix: float64[d, c], what wide contexts are multiplied with; None for others.
        scale: float64[c], what columns are divided by.
    """

    centre: Float64
    mix: Float64 | None
    scale: Float64

    @classmethod
    def like(cls, contexts: Float32, actions: int) -> Columns:
        """For contexts such as these, not scaled yet."""
        width, widest = contexts.shape[1], max(1, min(WIDEST, math.isqrt(_NUMBERS // (FOLDS * actions)) - 1))
        centre = contexts.mean(axis=0, dtype=np.float64)
        if width <= widest:
            return cls(centre, None, np.ones(width))
        signs = Key(0).child("reward model", width).generator().integers(0, 2, (width, widest))
        return cls(centre, (2.0 * signs - 1) / np.sqrt(widest), np.ones(widest))

    def __call__(self, contexts: Float32) -> Float64:
        """Columns of contexts, float64[n, c + 1]."""
        columns = np.ones((len(contexts), len(self.scale) + 1))
        centred = contexts - self.centre
        np.divide(centred if self.mix is None else centred @ self.mix, self.scale, out=columns[:, :-1])
        return columns

    def on_contexts(self, coefficients: Float64) -> tuple[Float64, Float64]:
        """Coefficients of columns [F, K, c + 1] as those of contexts themselves, [F, d, K], and a constant [F, K]."""
        slopes = (coefficients[..., :-1] / self.scale).swapaxes(1, 2)
        weights = slopes if self.mix is None else self.mix @ slopes
        return weights, coefficients[..., -1] - self.centre @ weights


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over the rows of each fold and action; x are columns, y is the reward less `offset`.

    Attributes:
        columns: how contexts became columns.
        offset: the mean reward of the first block.
        xx: float64[F, K, c, c].
        xy: float64[F, K, c].
        yy: float64[F, K].
    """

    columns: Columns
    offset: float
    xx: Float64
    xy: Float64
    yy: Float64

    @classmethod
    def of(cls, log: Log) -> Sums:
        """In one pass over a log."""
        sums = None
        for first_row, block in numbered(log):
            if sums is None:
                sums = cls._none(block, len(log.problem.actions))
            sums._add(block, first_row)
        assert sums is not None  # an empty log is refused
        return sums._scaled()

    @classmethod
    def _none(cls, first: Block, actions: int) -> Sums:
        columns = Columns.like(first.contexts, actions)
        shape, c = (FOLDS, actions), len(columns.scale) + 1
        offset = float(first.rewards.mean())
        return cls(columns, offset, np.zeros((*shape, c, c)), np.zeros((*shape, c)), np.zeros(shape))

    def _add(self, block: Block, first_row: int) -> None:
        folds, actions = self.yy.shape
        cells = (first_row + np.arange(len(block))) % folds * actions + block.actions
        order = np.argsort(cells, kind="stable")
        ends = np.searchsorted(cells[order], np.arange(self.yy.size + 1))
        for cell, (start, end) in enumerate(pairwise(ends)):
            rows = order[start:end]
            both = np.column_stack([self.columns(block.contexts[rows]), block.rewards[rows] - self.offset])
            cut = pieces(both, both.shape[1])
            products = (cut.swapaxes(1, 2) @ cut).sum(axis=0)
            at = divmod(cell, actions)
            self.xx[at] += products[:-1, :-1]
            self.xy[at] += products[:-1, -1]
            self.yy[at] += products[-1, -1]

    def _scaled(self) -> Sums:
        """The sums of columns with standard deviation one; those that do not vary stay as they are."""
        total = self.xx.sum(axis=(0, 1))
        square, mean = np.diagonal(total)[:-1] / total[-1, -1], total[-1, :-1] / total[-1, -1]
        variance = square - mean**2
        scale = np.sqrt(np.where(variance <= _FLAT * square, 1, variance))
        by = np.append(scale, 1)
        return replace(self, columns=replace(self.columns, scale=scale), xx=self.xx / np.outer(by, by), xy=self.xy / by)

    def means(self) -> Float64:
        """The mean y of the rows outside of each fold, float64[F]; that of a reward of 0 if there are none."""
        rows, totals = self.xx[:, :, -1, -1].sum(axis=1), self.xy[:, :, -1].sum(axis=1)
        others = rows.sum() - rows
        means: Float64 = np.where(others > 0, (totals.sum() - totals) / np.maximum(others, 1), -self.offset)
        return means

    def solve(self, ridge: Float64) -> Float64:
        """Coefficients of y - mean on x from the rows outside of each fold, under a penalty float64[c]; [F, K, c]."""
        xx, xy = self.xx.sum(axis=0) - self.xx, self.xy.sum(axis=0) - self.xy
        centred = xy - self.means()[:, None, None] * xx[..., -1]
        solved: Float64 = np.linalg.solve(xx + np.diag(ridge), centred[..., None])[..., 0]
        return solved

    def held_out(self, coefficients: Float64) -> Float64:
        """The summed squared errors of coefficients [F, K, c] on the rows of their own folds, float64[K]."""
        means = self.means()[:, None]
        rows, y = self.xx[..., -1, -1], self.xy[..., -1]
        left = self.xy - means[..., None] * self.xx[..., -1]
        fit = np.einsum("fkc,fkc->fk", coefficients, left)
        spread = np.einsum("fkc,fkcd,fkd->fk", coefficients, self.xx, coefficients, optimize=True)
        errors: Float64 = (self.yy - 2 * means * y + means**2 * rows - 2 * fit + spread).sum(axis=0)
        return errors
