"""Files that any process writes to a table's folder, added to the table in one commit.

Rows need not be moved to one process, and Polars writes them in less than half of the time of the library's writer.
Files that were never added are no part of the table; `vacuum` deletes them.
"""

from __future__ import annotations

import datetime as dt
import io
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
import polars as pl
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction

from potstill.events.lake import delta
from potstill.events.lake.lake import has_number
from potstill.events.lake.schema import DAY, Table, aligned, with_day
from potstill.events.lake.table import check_files_exist
from potstill.storage import Storage, open_storage

if TYPE_CHECKING:
    from potstill.events.lake.lake import Lake


def write_files(lake: Lake, table: Table, frame: pl.DataFrame) -> list[AddAction]:
    """Write rows to new files, one for each day; columns that the frame lacks are null."""
    storage, rows = open_storage(lake.url(table)), aligned(with_day(frame), lake.schema(table))
    with delta.storage_errors(lake.url(table)):
        return [_write(storage, part[DAY][0], part.drop(DAY)) for part in rows.partition_by(DAY)]


def add_files(
    lake: Lake, table: Table, files: Sequence[AddAction], *, writer: str, number: int, after: int | None = None
) -> bool:
    """Add written files exactly once: in one commit with a number of their writer, as `Lake.append` does.

    Returns:
        False if the table had that number already, or a later one, and nothing was added.

    Raises:
        Overtaken: The writer's last number is not `after` any more.
        FileNotFoundError: A file is gone; a vacuum takes away what is in no table for a while.
    """
    stored = lake.tables[table]
    check_files_exist(lake.url(table), (file.path for file in files))

    def add(handle: DeltaTable) -> bool:
        if has_number(handle, writer, number, after):
            return False
        handle.create_write_transaction(
            list(files),
            "append",
            handle.schema(),
            partition_by=[DAY],
            commit_properties=CommitProperties(app_transactions=[Transaction(writer, number)]),
        )
        handle.update_incremental()  # the handle must know its own commit, which is synced next
        return True

    lake.prepare(table)
    return stored.change(add)


def _write(storage: Storage, day: dt.date, rows: pl.DataFrame) -> AddAction:
    path, buffer = f"{DAY}={day}/part-{uuid4()}.zstd.parquet", io.BytesIO()
    rows.write_parquet(buffer, compression="zstd", compression_level=1)
    storage.replace(path, data := buffer.getvalue())
    return AddAction(
        path=path,
        size=len(data),
        partition_values={DAY: str(day)},
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        stats=msgspec.json.encode(_statistics(rows)).decode(),
    )


def _statistics(rows: pl.DataFrame) -> dict[str, object]:
    """Statistics as the library writes them: of `time` only, rounded down to milliseconds."""
    first, last = rows["time"].min(), rows["time"].max()
    bounds = pl.Series([first, last], dtype=rows.schema["time"]).dt.strftime("%Y-%m-%dT%H:%M:%S%.3fZ")
    return {
        "numRecords": len(rows),
        "minValues": {"time": bounds[0]},
        "maxValues": {"time": bounds[1]},
        "nullCount": {"time": 0},
    }
