"""CSV files of users; errors name the line and the way out."""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl

from potstill.tables.infer import in_one_line
from potstill.tables.scan import UnreadableTable


def read_csv(path: str | Path) -> pl.DataFrame:
    """Rows of a file whose first line names the columns; empty fields and NA are null."""
    try:
        names = _header(Path(path))
        return pl.read_csv(path, null_values=["NA", ""], infer_schema_length=None, new_columns=names)
    except UnicodeDecodeError:
        reason = "it is not UTF-8; convert it, for instance with iconv -f latin1 -t utf-8"
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        reason = _reason(Path(path), in_one_line(error))
    raise UnreadableTable(f"{path}: cannot be read as CSV: {reason}")


def _header(path: Path) -> list[str]:
    # Python's reader: Polars renames columns of equal names, so that a label could return as a feature.
    with path.open(encoding="utf-8-sig", newline="") as file:
        names = next(csv.reader(file), [])
    if not names:
        raise ValueError("it is empty; the first line must name the columns")
    if "" in names:
        place = names.index("") + 1
        raise ValueError(f"column {place} has no name; name it, or leave it out (in pandas, to_csv(..., index=False))")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"two columns are called {twice[0]!r}; rename one, or leave it out")
    return names


def _reason(path: Path, error: str) -> str:
    """A parser's message, with the line it is about where that can be found."""
    if "utf-8" in error.lower():
        return f"{error}; convert it to UTF-8, for instance with iconv -f latin1 -t utf-8"
    if "more fields" not in error:
        return error
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file)
        fields = len(next(lines))
        found = next(((lines.line_num, len(line)) for line in lines if len(line) > fields), None)
    if found is None:
        return error
    return f"line {found[0]} has {found[1]} fields, and the header {fields}; fields with a comma in them need quotes"
