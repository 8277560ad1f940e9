"""Columns of the lake as positions and masks, without a loop over rows."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.spaces.contract import Bool
from potstill.spaces.discrete.space import Discrete


class DiscreteColumns:
    """Column ``action`` holds a name, column ``eligible`` a list of names."""

    def __init__(self, space: Discrete) -> None:
        self._names = list(space.names)

    def fits(self, column: pl.Expr | None = None) -> pl.Expr:
        """Whether the name is one of the list."""
        return (pl.col("action") if column is None else column).is_in(self._names)

    def actions(self, column: pl.Series) -> NDArray[np.int32]:
        """Positions int32[N]."""
        places: NDArray[np.int32] = column.replace_strict(
            self._names, range(len(self._names)), return_dtype=pl.Int32
        ).to_numpy()
        return places

    def allowed(self, column: pl.Series) -> Bool | None:
        """Allowed actions, bool[N, K]; None if no row has a restriction."""
        if column.null_count() == len(column):
            return None
        allowed = [column.is_null() | column.list.contains(name).fill_null(value=False) for name in self._names]
        return np.column_stack([each.to_numpy() for each in allowed])


def lake_columns(space: Discrete) -> DiscreteColumns:
    """The lake's columns of a list of names."""
    return DiscreteColumns(space)
