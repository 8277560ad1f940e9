"""The lake's columns: their types, and a conversion for any space, value by value."""

from __future__ import annotations

from typing import Any

import polars as pl

from potstill.errors import InvalidAction
from potstill.spaces.contract import Actions, ActionSpace, Allowed, ColumnType

_TYPES: dict[ColumnType, pl.DataType] = {
    "string": pl.String(),
    "strings": pl.List(pl.String()),
    "integer": pl.Int64(),
    "integers": pl.List(pl.Int64()),
    "number": pl.Float64(),
    "numbers": pl.List(pl.Float64()),
}


def polars_type(kind: ColumnType) -> pl.DataType:
    """The Polars type of a column type."""
    return _TYPES[kind]


class GeneralColumns:
    """Conversion by the space's own `parse` and `encode`."""

    def __init__(self, space: ActionSpace) -> None:
        self._space = space

    def fits(self, column: pl.Expr | None = None) -> pl.Expr:
        """Whether the value parses."""
        values = pl.col("action") if column is None else column
        return values.map_elements(self._parses, return_dtype=pl.Boolean, skip_nulls=False)

    def actions(self, column: pl.Series) -> Actions:
        """The values, encoded."""
        return self._space.encode(column.to_list())

    def allowed(self, column: pl.Series) -> Allowed | None:
        """Allowed actions of each row; null allows everything."""
        return None if column.null_count() == len(column) else self._space.allow(column.to_list())

    def _parses(self, value: Any) -> bool:
        try:
            self._space.parse(value)
        except InvalidAction:
            return False
        return True


def lake_columns(space: ActionSpace) -> GeneralColumns:
    """The lake's columns of any space."""
    return GeneralColumns(space)
