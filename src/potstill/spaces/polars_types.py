"""Types of the lake's columns in Polars."""

from __future__ import annotations

import polars as pl

from potstill.spaces.contract import ColumnType

_TYPES: dict[ColumnType, pl.DataType] = {
    "string": pl.String(),
    "strings": pl.List(pl.String()),
    "integer": pl.Int64(),
    "integers": pl.List(pl.Int64()),
    "number": pl.Float64(),
    "numbers": pl.List(pl.Float64()),
}


def polars_type(kind: ColumnType) -> pl.DataType:
    """The type of a column that a space states."""
    return _TYPES[kind]
