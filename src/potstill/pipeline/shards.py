"""A table of contexts in shards: stretches of its rows, each of which can be read and encoded by itself."""

from __future__ import annotations

from functools import reduce
from pathlib import PurePosixPath
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.events.lake.observations import encoded_contexts
from potstill.keys import Key
from potstill.problem import Feature, InvalidContext, Problem
from potstill.tables.columns import context_column, context_schema
from potstill.tables.scan import UnreadableTable, scan_table

#: Rows of a shard: some megabytes, a second or two of labelling.
SHARD_ROWS = 100_000
#: Rows that are read for one shard when few of them are drawn.
READ_AT_MOST = 1_000_000
_FITS = "fits"


class Table(msgspec.Struct, frozen=True):
    """A table that does not change while it is read.

    Attributes:
        place: a file, or a folder of Delta Lake.
        version: of Delta Lake; rows that come later do not count.
    """

    place: str
    version: int | None = None

    @classmethod
    def at(cls, place: str, version: int | None = None) -> Table:
        """A table as it is now; one of Delta Lake also as it was at a version."""
        if PurePosixPath(place).suffix:
            return cls(place)
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return cls(place, DeltaTable(place).version() if version is None else version)
        except TableNotFoundError as error:
            raise UnreadableTable(f"{place}: there is no such table of Delta Lake") from error

    def scan(self) -> pl.LazyFrame:
        """Its rows, always in the same order."""
        return scan_table(self.place) if self.version is None else pl.scan_delta(self.place, version=self.version)

    def count(self) -> int:
        """How many there are."""
        return int(self.scan().select(pl.len()).collect().item())


class Shard(msgspec.Struct, frozen=True):
    """Rows of a table from `first` on, of which `drawn` are drawn at random."""

    table: Table
    first: int
    rows: int
    drawn: int


class Encoded(NamedTuple):
    """The encoded contexts float32[N, d] of some rows, and how many rows were left out, since they do not fit."""

    contexts: NDArray[np.float32]
    unfit: int


def shards(table: Table, count: int, at_most: int, rows: int | None = None) -> list[Shard]:
    """The shards of a table of so many rows, with about `rows` (`SHARD_ROWS`) contexts each and `at_most` in all.

    Where a shard begins depends on these numbers alone, so that every engine makes the same ones.
    """
    if PurePosixPath(table.place).suffix.lower() == ".csv":
        raise UnreadableTable(
            f"{table.place}: a CSV of {count:,} rows cannot be read in parts; write it as Parquet, "
            "for example with polars.scan_csv(…).sink_parquet(…)"
        )
    drawn, rows = min(count, at_most), rows or SHARD_ROWS
    if not drawn:
        return []
    stretch = min(-(-rows * count // drawn), max(READ_AT_MOST, rows))
    found = []
    for first in range(0, count, stretch):
        last = min(first + stretch, count)
        # In proportion to where the shard ends, so that they add up whatever the numbers are.
        found.append(Shard(table, first, last - first, last * drawn // count - first * drawn // count))
    return found


def read_shard(shard: Shard, problem: Problem, key: Key) -> Encoded:
    """The contexts of a shard; equal keys draw equal rows."""
    rows = shard.table.scan().slice(shard.first, shard.rows)
    if shard.drawn < shard.rows:
        rows = drawn_rows(rows, shard.rows, shard.drawn, key.child(shard.first))
    return encode(rows, problem, shard.table.place)


def drawn_rows(table: pl.LazyFrame, count: int, drawn: int, key: Key) -> pl.LazyFrame:
    """So many rows of a table of `count`, in their order; equal keys draw equal rows."""
    chosen = np.sort(key.generator().choice(count, drawn, replace=False))
    return table.filter(pl.int_range(pl.len()).is_in(pl.Series(chosen).implode()))


def encode(rows: pl.LazyFrame, problem: Problem, place: str) -> Encoded:
    """The contexts of a table's rows; those that lack what they must not, or have what they must not, are left out."""
    try:
        frame = _features(rows, problem, place).collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        raise InvalidContext(f"{place}: a column is not of its feature's type: {error}") from error
    fitting = frame.filter(_FITS).drop(_FITS)
    return Encoded(encoded_contexts(fitting, problem), len(frame) - len(fitting))


def none_fit(place: str, unfit: int) -> InvalidContext:
    """What to say of a table that has rows, none of which can be used."""
    return InvalidContext(f"{place}: none of {unfit:,} rows has a usable value of every feature of the problem")


def _features(rows: pl.LazyFrame, problem: Problem, place: str) -> pl.LazyFrame:
    """The columns for the problem's features, named and typed as in the lake, and whether a row fits."""
    there = rows.collect_schema().names()
    columns = {feature.name: _column(feature, there) for feature in problem.context}
    if not any(columns.values()):
        raise InvalidContext(f"{place}: none of the problem's features is a column; the columns are {', '.join(there)}")
    typed, fits = [], [pl.lit(value=True)]
    for feature, (name, dtype) in zip(problem.context, context_schema(problem).items(), strict=True):
        given = columns[feature.name]
        value = pl.lit(None, dtype) if given is None else pl.col(given).cast(dtype, strict=False)
        typed.append(value.alias(name))
        if given is not None:
            fits.append(_fits(value, dtype).fill_null(value=True) & (value.is_not_null() | pl.col(given).is_null()))
        if feature.missing == "error":
            fits.append(value.is_not_null())
    return rows.select(*typed, reduce(lambda one, other: one & other, fits).alias(_FITS))


def _fits(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    return value.is_finite() if dtype == pl.Float64() else pl.lit(value=True)


def _column(feature: Feature, there: list[str]) -> str | None:
    """The column of a feature: of its name, or as the lake has it."""
    return next((name for name in (feature.name, context_column(feature.name)) if name in there), None)
