"""CSV files of users; errors name the line and the way out."""

from __future__ import annotations

import csv
from pathlib import Path

import polars as pl

from potstill.tables.scan import UnreadableTable, why_not_text


def read_csv(path: str | Path) -> pl.DataFrame:
    """Rows of a file whose first line names the columns; empty fields and NA are null."""
    try:
        names = _header(Path(path))
        return pl.read_csv(path, null_values=["NA", ""], infer_schema_length=None, new_columns=names)
    except (pl.exceptions.PolarsError, OSError, ValueError) as error:
        reason = why_not_text(str(path), error)
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
