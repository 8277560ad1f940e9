"""Erase rows from the lake's tables: files that hold some are written again without them, and deleted."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import polars as pl

from potstill.events.lake.repair import all_files, read_whole, take_out
from potstill.events.lake.schema import Table
from potstill.events.lake.table import File
from potstill.storage import open_storage

if TYPE_CHECKING:
    from potstill.events.lake.lake import Lake

#: Files whose ids are looked at together.
FILES = 50


def ids_of_unit(lake: Lake, unit: str) -> set[str]:
    """Ids of the decisions of a unit, joined or not."""
    found: set[str] = set()
    for table in ("decisions", "observations"):
        rows = lake.scan(table).filter(pl.col("unit") == unit).select("id")
        found.update(rows.collect(engine="streaming")["id"].to_list())
    return found


def erase(lake: Lake, table: Table, ids: Collection[str]) -> int:
    """Erase the rows of some ids from a table, and from files that it once referred to; returns their number.

    Each file is replaced in one commit, and its bytes are deleted then: whoever reads the table at an earlier version
    may miss it and has to begin again. The join's change feed reads all rows again afterwards, and counts none twice.
    """
    if lake.version(table) is None:
        return 0
    wanted, erased = pl.Series(sorted(ids), dtype=pl.String()).implode(), 0
    for file in _holding(lake, table, wanted):
        rows = read_whole(file)
        kept = rows.filter(~pl.col("id").is_in(wanted))
        take_out(lake, table, file, kept if len(kept) else None)
        erased += len(rows) - len(kept)
    _delete_former(lake, table)
    return erased


def _holding(lake: Lake, table: Table, wanted: pl.Series) -> list[File]:
    """Files with rows of some ids."""
    files = lake.files(table)
    found: list[File] = []
    for start in range(0, len(files), FILES):
        part = files[start : start + FILES]
        if _has(lake, table, part, wanted):
            found += [file for file in part if _has(lake, table, [file], wanted)]
    return found


def _has(lake: Lake, table: Table, files: list[File], wanted: pl.Series) -> bool:
    rows = lake.read(table, files).filter(pl.col("id").is_in(wanted)).select(pl.len())
    return bool(rows.collect(engine="streaming").item())


def _delete_former(lake: Lake, table: Table) -> None:
    """Delete the files that a compaction or an erasure has taken out of the table: they may hold the same rows."""
    present = {file.uri for file in lake.files(table)}
    storage = open_storage(lake.url(table))
    for file in all_files(lake, table):
        if file.uri not in present:
            storage.delete(file.uri.removeprefix(f"{lake.url(table)}/"))
