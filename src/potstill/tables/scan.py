"""Tables of users, scanned lazily: CSV and its kin, JSON lines, Parquet or Delta Lake."""

from __future__ import annotations

import csv
import gzip
import re
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import polars as pl

from potstill.errors import PotstillError
from potstill.tables.infer import in_one_line

_TEXT, _JSON, _PARQUET = (".csv", ".tsv"), (".jsonl", ".ndjson"), (".parquet", ".pq")
#: Suffixes of the tables that are files; text may also be compressed, as ``.csv.gz``.
TABLE_SUFFIXES = (*_TEXT, *_JSON, *_PARQUET)
_COMPRESSED = ".gz"
#: Rows that types are inferred from, and lines that tell how the fields of a text are separated.
_INFERRED, _SAMPLED = 10_000, 100
_DECIMAL_COMMA, _DECIMAL_POINT = re.compile(r"[-+]?\d+,\d+"), re.compile(r"[-+]?\d+\.\d+")


class UnreadableTable(PotstillError, ValueError):
    """A table cannot be read; the message says why."""


class _Fields(NamedTuple):
    """How a text separates fields, and whether its numbers have a decimal comma."""

    separator: str = ","
    decimal_comma: bool = False


def suffix_of(place: str) -> str:
    """The suffix of a table's name in lower case, without that of a compression."""
    name = PurePosixPath(place.lower())
    return (name.with_suffix("") if name.suffix == _COMPRESSED else name).suffix


def is_table_file(place: str) -> bool:
    """Whether a name is that of a table in a file."""
    return suffix_of(place) in TABLE_SUFFIXES


def is_text(place: str) -> bool:
    """Whether a table is text without types."""
    return suffix_of(place) in _TEXT


def has_parts(place: str) -> bool:
    """Whether some rows of a table can be read without those before them, as of Parquet and Delta Lake."""
    return suffix_of(place) not in (*_TEXT, *_JSON)


def scan_table(place: str) -> pl.LazyFrame:
    """A table by the suffix of its name; a folder is a Delta Lake table. `UnreadableTable` if it has no columns."""
    if "://" not in place and not Path(place).exists():
        raise UnreadableTable(f"{place}: there is no such file")
    ending = suffix_of(place)
    try:
        if ending == "":
            return _scan_delta(place)
        return _readable(_scan_file(place, ending))
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UnreadableTable(f"{place}: {in_one_line(error)}") from error


def _scan_file(place: str, ending: str) -> pl.LazyFrame:
    if ending in _TEXT:
        fields = _fields(place, ending)
        return pl.scan_csv(
            place,
            separator=fields.separator,
            decimal_comma=fields.decimal_comma,
            infer_schema_length=_INFERRED,
        )
    if ending in _JSON:
        return pl.scan_ndjson(place, infer_schema_length=_INFERRED)
    if ending in _PARQUET:
        return pl.scan_parquet(place)
    raise UnreadableTable(
        f"{place}: tables are {', '.join(TABLE_SUFFIXES)} or a folder of Delta Lake, not {ending!r}; text may be "
        f"compressed, as .csv{_COMPRESSED}"
    )


def _fields(place: str, ending: str) -> _Fields:
    """Tabs by the suffix, semicolons by the header of a local file; a decimal comma by the first lines."""
    if ending == ".tsv":
        return _Fields("\t")
    if "://" in place:
        return _Fields()
    lines = _first_lines(Path(place))
    if not lines or "," in lines[0] or ";" not in lines[0]:
        return _Fields()
    cells = [cell.strip() for row in csv.reader(lines[1:], delimiter=";") for cell in row]
    comma = any(_DECIMAL_COMMA.fullmatch(cell) for cell in cells)
    return _Fields(";", comma and not any(_DECIMAL_POINT.fullmatch(cell) for cell in cells))


def _first_lines(path: Path) -> list[str]:
    opened = gzip.open if path.suffix.lower() == _COMPRESSED else open
    with opened(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as file:
        return [line for _, line in zip(range(_SAMPLED), file, strict=False)]


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
