"""Tables of users, scanned lazily: CSV and its kin, JSON lines, Parquet or Delta Lake."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, NamedTuple, cast

import msgspec
import polars as pl

from potstill.errors import PotstillError

_TEXT, _JSON, _PARQUET = (".csv", ".tsv"), (".jsonl", ".ndjson"), (".parquet", ".pq")
#: Suffixes of the tables that are files; text may also be compressed, as ``.csv.gz``.
TABLE_SUFFIXES = (*_TEXT, *_JSON, *_PARQUET)
_COMPRESSED = ".gz"
#: Lines that tell how the fields of a text are separated, and bytes that are read to find them.
_SAMPLED, _HEAD = 100, 1 << 20
#: What separates fields; of those that make equally many of the header, the first.
_SEPARATORS = (",", ";", "\t", "|")
_GZIP, _UTF_16 = b"\x1f\x8b", (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
#: What a damaged compressed text raises.
_DAMAGED = (EOFError, zlib.error)
#: Characters of a parser's message.
_LONGEST = 300
#: Column of row numbers, which no table may have.
ROW = "number of the row"
#: Names that Polars takes for patterns of names.
_PATTERN = re.compile(r"\*|\^.*\$", re.DOTALL)
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
    """A table by the suffix of its name; a folder is a Delta Lake table. `UnreadableTable` if it has no columns.

    Types of text and JSON are inferred from all rows.
    """
    try:
        if "://" not in place and not Path(place).exists():
            raise UnreadableTable(f"{place}: there is no such file{_pattern_way_out(place)}")
        ending = suffix_of(place)
        if ending == "" and ("://" in place or Path(place).is_dir()):
            return _scan_delta(place)
        return readable(_scan_file(place, ending), place)
    except (pl.exceptions.PolarsError, OSError, *_DAMAGED) as error:
        raise UnreadableTable(f"{place}: {why_not(place, error)}") from error


def readable(table: pl.LazyFrame, where: str) -> pl.LazyFrame:
    """A table with types that Potstill reads: decimals become floats and categories strings.

    Args:
        table: A table of a user.
        where: Its name, for errors.

    Raises:
        UnreadableTable: A column has a name that cannot be addressed.
        PolarsError: The table has no columns, or is of another format.
    """
    schema = table.collect_schema()
    for name in schema:
        if not can_be_column(name):
            raise UnreadableTable(f"{where}: a column cannot be called {name!r}, which has a meaning here; rename it")
    floats = [name for name, dtype in schema.items() if dtype.is_decimal()]
    texts = [name for name, dtype in schema.items() if dtype in (pl.Categorical, pl.Enum)]
    if not floats and not texts:
        return table
    return table.with_columns(pl.col(floats).cast(pl.Float64), pl.col(texts).cast(pl.String))


def can_be_column(name: str) -> bool:
    """Whether a column of a table can be called so: not as that of row numbers, or as a pattern of names."""
    return name != ROW and not _PATTERN.fullmatch(name)


def collected(table: pl.LazyFrame, where: str) -> pl.DataFrame:
    """Rows of a table of a user; `UnreadableTable` if they cannot be read.

    Args:
        table: The table.
        where: Its name, for errors.
    """
    try:
        return table.collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UnreadableTable(f"{where}: {why_not(where, error)}") from error


def in_one_line(error: Exception) -> str:
    """The first line of a message."""
    line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def why_not(place: str, error: Exception) -> str:
    """A reader's message in one line; of a local text with the line that it is about and the way out."""
    if suffix_of(place) in _JSON and _is_file(place):
        return _no_json(place) or in_one_line(error)
    return why_not_text(place, error) if is_text(place) else in_one_line(error)


def why_not_text(place: str, error: Exception) -> str:
    """`why_not` for a file that is known to be text, also without the suffix of one."""
    reason, is_local = in_one_line(error), _is_file(place)
    if is_local and (isinstance(error, UnicodeDecodeError) or "utf-8" in reason.lower()):
        return f"it is not UTF-8; convert it, for instance with iconv -f {_encoding(place)} -t utf-8"
    if is_local and "more fields" in reason:
        return _too_many_fields(place) or reason
    if "could not parse" in reason:
        return f"{reason}; is a quotation mark not closed?"
    return reason


def _no_json(place: str) -> str | None:
    """The first line that is no JSON object; None if none is found."""
    with _opened(place) as file:
        for number, line in enumerate(file, 1):
            try:
                if line.strip():
                    msgspec.json.decode(line, type=dict[str, Any])
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                return f"line {number} is not a JSON object: {error}"
    return None


def _is_file(place: str) -> bool:
    """Whether a place is a local file; a name that is too long for one is none."""
    try:
        return Path(place).is_file()
    except OSError:
        return False


def _encoding(place: str) -> str:
    """What a text is encoded in that is not UTF-8, as far as its first bytes tell."""
    with _opened(place) as file:
        return "utf-16" if file.read(2) in _UTF_16 else "latin1"


def _too_many_fields(place: str) -> str | None:
    """The first line with more fields than the header; None if none is found."""
    with io.TextIOWrapper(_opened(place), "utf-8-sig", errors="replace", newline="") as file:
        lines = csv.reader(file, delimiter=_fields(place).separator)
        try:
            fields = len(next(lines))
            found = next(((lines.line_num, len(line)) for line in lines if len(line) > fields), None)
        except csv.Error:
            return None
    if found is None:
        return None
    return (
        f"line {found[0]} has {found[1]} fields, and the header {fields}; fields with a separator in them need quotes"
    )


def _pattern_way_out(place: str) -> str:
    return f"; a query reads several files: --sql \"SELECT * FROM '{place}'\"" if "*" in place else ""


def _scan_file(place: str, ending: str) -> pl.LazyFrame:
    if ending in _TEXT:
        fields = _fields(place)
        return pl.scan_csv(
            place,
            separator=fields.separator,
            decimal_comma=fields.decimal_comma,
            infer_schema_length=None,
        )
    if ending in _JSON:
        return pl.scan_ndjson(place, infer_schema_length=None)
    if ending in _PARQUET:
        return pl.scan_parquet(place)
    raise UnreadableTable(
        f"{place}: tables are {', '.join(TABLE_SUFFIXES)} or a folder of Delta Lake, not {ending!r}; text may be "
        f"compressed, as .csv{_COMPRESSED}"
    )


def _fields(place: str) -> _Fields:
    """Tabs by the suffix, other separators by the header of a local file; a decimal comma by the first lines."""
    separators = ("\t",) if suffix_of(place) == ".tsv" else _SEPARATORS
    if "://" in place:
        return _Fields(separators[0])
    head = _head(place)
    headers = {separator: next(_rows(head, separator), []) for separator in separators}
    separator = max(separators, key=lambda each: len(headers[each]))
    # Polars renames columns of equal names, so that a reward could return as a feature.
    if twice := [name for name in headers[separator] if name and headers[separator].count(name) > 1]:
        raise UnreadableTable(f"{place}: two columns are called {twice[0]!r}; rename one, or leave it out")
    if separator != ";":
        return _Fields(separator)
    cells = [cell.strip() for row in islice(_rows(head, separator), 1, _SAMPLED) for cell in row]
    comma = any(_DECIMAL_COMMA.fullmatch(cell) for cell in cells)
    return _Fields(separator, comma and not any(_DECIMAL_POINT.fullmatch(cell) for cell in cells))


def _rows(text: str, separator: str) -> Iterator[list[str]]:
    """Rows of a text, up to one that Python's reader does not take, as of a very long field."""
    with suppress(csv.Error):
        yield from csv.reader(io.StringIO(text, newline=""), delimiter=separator)


def _head(place: str) -> str:
    """The first characters of a text."""
    with _opened(place) as file:
        head = file.read(_HEAD)
    try:
        return codecs.getincrementaldecoder("utf-8-sig")().decode(head)
    except UnicodeDecodeError as error:
        raise UnreadableTable(f"{place}: {why_not_text(place, error)}") from error


def _opened(place: str) -> BinaryIO:
    """A file, decompressed if it is compressed: by its content, as Polars does."""
    with Path(place).open("rb") as file:
        compressed = file.read(2) == _GZIP
    return cast("BinaryIO", gzip.open(place)) if compressed else Path(place).open("rb")


def _scan_delta(place: str) -> pl.LazyFrame:
    from deltalake.exceptions import DeltaError, TableNotFoundError

    try:
        return readable(pl.scan_delta(place), place)
    except TableNotFoundError as error:
        raise UnreadableTable(
            f'{place}: this folder is not a Delta Lake table; name one file, or several by a query: --sql "SELECT * '
            f"FROM '{place.rstrip('/')}/*.parquet'\""
        ) from error
    except DeltaError as error:
        raise UnreadableTable(f"{place}: {in_one_line(error)}") from error
