"""Tables that a user brings: CSV, Parquet or Delta Lake, read a part at a time."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import polars as pl

from potstill.errors import PotstillError


class UnreadableTable(PotstillError, ValueError):
    """A table cannot be read; the message says why."""


def scan_table(place: str) -> pl.LazyFrame:
    """A table by the ending of its name; a folder is taken as a Delta Lake table."""
    ending = PurePosixPath(place).suffix.lower()
    if "://" not in place and not Path(place).exists():
        raise UnreadableTable(f"{place}: there is no such file")
    try:
        if ending == ".csv":
            return pl.scan_csv(place, infer_schema_length=10_000)
        if ending in (".parquet", ".pq"):
            return pl.scan_parquet(place)
        if ending == "":
            return pl.scan_delta(place)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UnreadableTable(f"{place}: {error}") from error
    raise UnreadableTable(f"{place}: tables are .csv, .parquet or a folder of Delta Lake, not {ending!r}")
