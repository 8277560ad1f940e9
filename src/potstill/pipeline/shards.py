"""A table of contexts in shards: ranges of its rows that are read and encoded independently."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.problem import Feature, InvalidContext, Problem
from potstill.tables import (
    FITS,
    ROW,
    RowRules,
    UnreadableTable,
    context_column,
    context_rules,
    encode_contexts,
    has_parts,
    is_text,
    scan_table,
)

#: Contexts per shard: a few megabytes, one or two seconds of labelling.
SHARD_ROWS = 100_000
#: Maximum rows read for one shard when few of them are drawn.
READ_AT_MOST = 1_000_000


class Table(msgspec.Struct, frozen=True):
    """A table that does not change while it is read.

    Attributes:
        place: Path or URL of a file, or of a Delta Lake table.
        version: Version of a Delta Lake table; rows added later are not read.
    """

    place: str
    version: int | None = None

    @classmethod
    def at(cls, place: str, version: int | None = None) -> Table:
        """A table as it is now, or a Delta Lake table at a version."""
        if PurePosixPath(place).suffix:
            return cls(place)
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return cls(place, DeltaTable(place).version() if version is None else version)
        except TableNotFoundError as error:
            raise UnreadableTable(f"{place}: there is no such Delta Lake table") from error

    def scan(self) -> pl.LazyFrame:
        """Rows, always in the same order."""
        return scan_table(self.place) if self.version is None else pl.scan_delta(self.place, version=self.version)

    def count(self) -> int:
        """Number of rows."""
        return int(self.scan().select(pl.len()).collect().item())


class Shard(msgspec.Struct, frozen=True):
    """A range of rows, of which some are drawn at random.

    Attributes:
        table: The table.
        first: Number of the first row.
        rows: Number of rows in the range.
        drawn: Number of rows that are drawn.
    """

    table: Table
    first: int
    rows: int
    drawn: int


class Encoded(NamedTuple):
    """Contexts of some rows.

    Attributes:
        contexts: Encoded contexts, float32[N, d].
        unfit: Number of excluded rows that do not fit the problem.
    """

    contexts: NDArray[np.float32]
    unfit: int


def shards(table: Table, count: int, at_most: int, rows: int | None = None) -> list[Shard]:
    """Shards of a table with `count` rows: about `rows` (`SHARD_ROWS`) contexts each, at most `at_most` in total.

    Shards depend on these numbers only, so that every engine makes the same shards.
    """
    if not has_parts(table.place):
        raise UnreadableTable(
            f"{table.place}: text, here of {count:,} rows, cannot be read in parts; write it as Parquet, "
            "for example with polars.scan_csv(…).sink_parquet(…)"
        )
    drawn, rows = min(count, at_most), rows or SHARD_ROWS
    if not drawn:
        return []
    stretch = min(-(-rows * count // drawn), max(READ_AT_MOST, rows))
    found = []
    for first in range(0, count, stretch):
        last = min(first + stretch, count)
        # Proportional to the end of the shard, so that the draws of all shards sum exactly to `drawn`.
        found.append(Shard(table, first, last - first, last * drawn // count - first * drawn // count))
    return found


def read_shard(shard: Shard, problem: Problem, key: Key) -> Encoded:
    """Contexts of a shard; equal keys draw equal rows."""
    rows = shard.table.scan().slice(shard.first, shard.rows)
    if shard.drawn < shard.rows:
        rows = drawn_rows(rows, shard.rows, shard.drawn, key.child(shard.first))
    return encode(rows, problem, shard.table.place)


def drawn_rows(table: pl.LazyFrame, count: int, drawn: int, key: Key) -> pl.LazyFrame:
    """`drawn` rows of a table of `count`, in the table's order; equal keys draw equal rows."""
    chosen = np.sort(key.generator().choice(count, drawn, replace=False))
    return table.filter(pl.int_range(pl.len()).is_in(pl.Series(chosen).implode()))


def encode(rows: pl.LazyFrame, problem: Problem, place: str) -> Encoded:
    """Encoded contexts of the rows that fit the problem, and the number of those that do not."""
    fitting, unfit = fitting_rows(rows, problem, place)
    return Encoded(encode_contexts(fitting, problem), unfit)


def fitting_rows(
    rows: pl.LazyFrame, problem: Problem, place: str, carried: Mapping[str, str] | None = None
) -> tuple[pl.DataFrame, int]:
    """Contexts of the rows that fit the problem, with other columns to carry, and the number of those that do not."""
    try:
        frame = _rules(rows, problem, place, carried).rows(rows.with_row_index(ROW)).collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        raise InvalidContext(f"{place}: a column is not of its feature's type: {error}") from error
    fitting = frame.filter(FITS)
    return fitting, len(frame) - len(fitting)


def none_fit(place: str, unfit: int) -> InvalidContext:
    """Error for a table of which no row fits."""
    return InvalidContext(f"{place}: none of its {unfit:,} rows fits the features of the problem")


def _rules(rows: pl.LazyFrame, problem: Problem, place: str, carried: Mapping[str, str] | None) -> RowRules:
    schema = rows.collect_schema()
    columns = {feature.name: _column(feature, schema.names()) for feature in problem.context}
    if not any(columns.values()):
        names = ", ".join(schema.names())
        raise InvalidContext(f"{place}: none of the problem's features is a column; the columns are {names}")
    return RowRules(context_rules(problem, columns, schema, text=is_text(place)), carried)


def _column(feature: Feature, present: list[str]) -> str | None:
    """Column of a feature: named like the feature, or like its column in the lake."""
    return next((name for name in (feature.name, context_column(feature.name)) if name in present), None)
