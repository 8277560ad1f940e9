"""Tables of users, scanned lazily: CSV, Parquet or Delta Lake."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import polars as pl

from potstill.errors import PotstillError
from potstill.tables.infer import in_one_line


class UnreadableTable(PotstillError, ValueError):
    """A table cannot be read; the message says why."""


def is_text(place: str) -> bool:
    """Whether a table is text without types."""
    return PurePosixPath(place).suffix.lower() == ".csv"


def scan_table(place: str) -> pl.LazyFrame:
    """A table by the suffix of its name; a folder is a Delta Lake table. `UnreadableTable` if it has no columns."""
    if "://" not in place and not Path(place).exists():
        raise UnreadableTable(f"{place}: there is no such file")
    ending = PurePosixPath(place).suffix.lower()
    try:
        if ending == "":
            return _scan_delta(place)
        return _readable(_scan_file(place, ending))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UnreadableTable(f"{place}: {in_one_line(error)}") from error


def _scan_file(place: str, ending: str) -> pl.LazyFrame:
    if is_text(place):
        return pl.scan_csv(place, infer_schema_length=10_000)
    if ending in (".parquet", ".pq"):
        return pl.scan_parquet(place)
    raise UnreadableTable(f"{place}: tables are .csv, .parquet or a folder of Delta Lake, not {ending!r}")


def _scan_delta(place: str) -> pl.LazyFrame:
    from deltalake.exceptions import TableNotFoundError

    try:
        return _readable(pl.scan_delta(place))
    except TableNotFoundError as error:
        raise UnreadableTable(f"{place}: this folder is not a Delta Lake table") from error


def _readable(table: pl.LazyFrame) -> pl.LazyFrame:
    """The table, whose columns were looked at: a file without any, or of another format, raises here."""
    table.collect_schema()
    return table
