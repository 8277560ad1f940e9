"""Data files that any process writes to a table's folder, added to the table in one commit.

Rows need not be moved to one process, and Polars writes them in less than half of the time of the library's writer. The
name of a file holds its checksum. Files that were never added are no part of the table; `vacuum` deletes them.
"""

from __future__ import annotations

import datetime as dt
import io
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
import polars as pl
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from potstill.events.lake import delta
from potstill.events.lake.checksums import checked_name
from potstill.events.lake.delta import has_number
from potstill.events.lake.schema import DAY, Table, aligned, with_day
from potstill.events.lake.table import check_files_exist
from potstill.storage import Storage, open_storage

if TYPE_CHECKING:
    from potstill.events.lake.lake import Lake

#: Bytes of a page, uncompressed: a reader of a short time range skips pages that hold none of it.
PAGE_BYTES = 128 * 1024
#: Rows of a stream that are held in memory, all days together; then the largest day is written to a file.
STREAM_BYTES = 64 * 1024 * 1024


def write_files(lake: Lake, table: Table, frame: pl.DataFrame) -> list[AddAction]:
    """Write rows to new files, one for each day; columns that the frame lacks are null."""
    return write_rows(lake.url(table), aligned(with_day(frame), lake.schema(table)))


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
    check_files_exist(lake.url(table), (file.path for file in files))

    def add(handle: DeltaTable) -> bool:
        if has_number(handle, writer, number, after):
            return False
        delta.append(handle, files, writer, number)
        return True

    lake.prepare(table)
    return lake.tables[table].change(add)


def write_rows(url: str, rows: pl.DataFrame) -> list[AddAction]:
    """Write rows, which have a `day`, to new files of the table at a path or address, one for each day."""
    storage = open_storage(url)
    with delta.storage_errors(url):
        return [_write(storage, part[DAY][0], part.drop(DAY)) for part in rows.partition_by(DAY)]


def write_stream(url: str, frames: Iterable[pl.DataFrame]) -> list[AddAction]:
    """Write the rows of many frames with equal columns and a `day`, with few of them in memory."""
    held: defaultdict[dt.date, list[pl.DataFrame]] = defaultdict(list)
    sizes: defaultdict[dt.date, int] = defaultdict(int)
    files: list[AddAction] = []

    def write(day: dt.date) -> None:
        sizes.pop(day)
        files.extend(write_rows(url, pl.concat(held.pop(day))))

    for frame in frames:
        for part in frame.partition_by(DAY):
            day = part[DAY][0]
            held[day].append(part)
            sizes[day] += int(part.estimated_size())
        while sum(sizes.values()) > STREAM_BYTES:
            write(max(sizes, key=sizes.__getitem__))
    for day in sorted(held):
        write(day)
    return files


def _write(storage: Storage, day: dt.date, rows: pl.DataFrame) -> AddAction:
    buffer = io.BytesIO()
    rows.write_parquet(buffer, compression="zstd", compression_level=1, data_page_size=PAGE_BYTES)
    data = buffer.getvalue()
    path = f"{DAY}={day}/{checked_name(f'part-{uuid4()}', data, '.zstd.parquet')}"
    storage.replace(path, data)
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
