"""Columns of the lake as numbers and intervals, without a loop over rows."""

from __future__ import annotations

import numpy as np
import polars as pl

from potstill.spaces.continuous.space import Continuous
from potstill.spaces.contract import Float64


class ContinuousColumns:
    """Column ``action`` holds a number, column ``eligible`` a list of two."""

    def __init__(self, space: Continuous) -> None:
        self._low, self._high = space.low, space.high

    def fits(self, column: pl.Expr | None = None) -> pl.Expr:
        """Whether the number is within the bounds."""
        value = (pl.col("action") if column is None else column).cast(pl.Float64, strict=False)
        return value.is_between(self._low, self._high)

    def actions(self, column: pl.Series) -> Float64:
        """Numbers float64[N]."""
        numbers: Float64 = column.cast(pl.Float64).to_numpy()
        return numbers

    def allowed(self, column: pl.Series) -> Float64 | None:
        """Intervals float64[N, 2]; None if no row has a restriction."""
        if column.null_count() == len(column):
            return None
        ends = [
            column.list.get(i, null_on_oob=True).fill_null(bound) for i, bound in enumerate((self._low, self._high))
        ]
        return np.column_stack([end.to_numpy() for end in ends])


def lake_columns(space: Continuous) -> ContinuousColumns:
    """The lake's columns of a continuous space."""
    return ContinuousColumns(space)
