"""The latest rows of a table, as many as a report needs, without reading older files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from potstill.events.lake import Lake, Table


def latest_rows(lake: Lake, table: Table, count: int, *where: pl.Expr) -> pl.DataFrame:
    """The latest rows that meet some conditions, oldest first; files are read from the newest on until they suffice."""
    frames: list[pl.DataFrame] = []
    found, reached = 0, None
    for file in sorted(lake.files(table), key=lambda one: one.last, reverse=True):
        if reached is not None and file.last < reached:
            break
        frame = lake.read(table, [file]).filter(*where).sort("time", "id").tail(count).collect()
        frames.append(frame)
        found += len(frame)
        if found >= count:  # later files can only have rows that are newer than the oldest of these
            times = pl.concat([each["time"] for each in frames]).sort().tail(count)
            reached = int(times.dt.epoch("us")[0])
    if not frames:
        return lake.read(table, []).collect()
    return pl.concat(frames).sort("time", "id").tail(count)
