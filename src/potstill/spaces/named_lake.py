"""Columns of the lake as positions and masks, without a loop over rows."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.spaces.contract import Bool
from potstill.spaces.named import NamedActions


class NamedColumns:
    """Column ``action`` holds a name, column ``eligible`` a list of names."""

    def __init__(self, space: NamedActions) -> None:
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
        # Not a look at each list for each name: with thousands of actions that took minutes.
        rows = pl.DataFrame({"row": np.arange(len(column)), "name": column}).explode("name").drop_nulls()
        places = rows["name"].replace_strict(self._names, range(len(self._names)), default=None, return_dtype=pl.Int32)
        known = places.is_not_null()
        allowed = np.zeros((len(column), len(self._names)), bool)
        allowed[rows["row"].filter(known).to_numpy(), places.filter(known).to_numpy()] = True
        allowed[column.is_null().to_numpy()] = True
        return allowed


def lake_columns(space: NamedActions) -> NamedColumns:
    """The lake's columns of a list of names."""
    return NamedColumns(space)
