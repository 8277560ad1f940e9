"""Decisions and rewards wherever they are: in the lake, and in this machine's log that is not in the lake yet."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from potstill.events import Row
from potstill.events.lake import File, Table, decision_frame, reward_frame, split
from potstill.events.wal import Spool, UnreadableSegment, newest_first
from potstill.problem import Problem
from potstill.workspace import Workspace

#: The most files that are searched at a time.
FILES = 16
#: The most rows that are taken from the log.
LOG_ROWS = 100_000
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
FRAMES: dict[Table, Any] = {"decisions": decision_frame, "rewards": reward_frame}


def moment(micros: int) -> dt.datetime:
    """A time in microseconds since 1970."""
    return _EPOCH + dt.timedelta(microseconds=micros)


def microseconds(time: dt.datetime) -> int:
    """Microseconds since 1970 of a time."""
    return (time - _EPOCH) // dt.timedelta(microseconds=1)


def in_log(workspace: Workspace, table: Table, keep: pl.Expr, most: int) -> pl.DataFrame:
    """The latest rows of this machine's log, with a column `log`; some may be in the lake already."""
    schema = workspace.lake.schema(table)
    frames = [schema.to_frame()]
    left = LOG_ROWS
    for problem, rows in _segments(workspace.segments):
        decisions, rewards = split(rows[:left])
        events: Sequence[Any] = decisions if table == "decisions" else rewards
        left -= len(rows)
        if events:
            frame = FRAMES[table](events, problem)
            frames.append(_like(frame, schema).filter(keep))
        if left <= 0 or sum(map(len, frames)) >= most:
            break
    return pl.concat(frames).with_columns(log=pl.lit(value=True))


def in_lake(workspace: Workspace, table: Table, keep: pl.Expr, most: int, files: Sequence[File]) -> pl.DataFrame:
    """The latest rows of some files of the lake, newest files first, with a column `log`."""
    frames = [workspace.lake.schema(table).to_frame()]
    count, at, size = 0, 0, 1
    ordered = sorted(files, key=lambda file: -file.last)
    while at < len(ordered):
        some = ordered[at : at + size]
        if count >= most and _oldest(frames, most) >= max(file.last for file in some):
            break
        frame = workspace.lake.read(table, some).filter(keep).top_k(most, by="time").collect(engine="streaming")
        frames.append(frame)
        count += len(frame)
        # The latest rows are nearly always in the first file; what is rare is looked for in many at a time.
        at, size = at + size, min(2 * size, FILES)
    return pl.concat(frames).sort("time", descending=True).head(most).with_columns(log=pl.lit(value=False))


def latest(workspace: Workspace, table: Table, keep: pl.Expr, most: int, files: Sequence[File]) -> pl.DataFrame:
    """The latest rows of the log and the lake, newest first; a row that is in both is that of the lake."""
    both = pl.concat([in_lake(workspace, table, keep, most, files), in_log(workspace, table, keep, most)])
    same = ["id", "time", "action"] if table == "decisions" else ["id", "time", "reward", "key"]
    return both.sort("log").unique(same, keep="first", maintain_order=True).sort("time", descending=True).head(most)


def _oldest(frames: Sequence[pl.DataFrame], most: int) -> int:
    """Time of the oldest row that would be kept of those found so far."""
    times = pl.concat([frame.select("time") for frame in frames]).sort("time", descending=True).head(most)
    last: dt.datetime = times["time"][-1]
    return microseconds(last)


def _segments(spool: Spool) -> Iterator[tuple[Problem, list[Row]]]:
    """Rows of each segment on this machine's disk, newest segment first, newest row first."""
    for path in spool.newest():
        with contextlib.suppress(UnreadableSegment, FileNotFoundError):
            header, rows = newest_first(path)
            yield header.problem, list(rows)


def _like(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """A frame with the columns of the present problem; those that it lacks, or has in another type, are null."""
    there = frame.with_columns(day=pl.col("time").dt.date())
    return there.select(
        pl.col(name) if there.schema.get(name) == dtype else pl.lit(None, dtype).alias(name)
        for name, dtype in schema.items()
    )
