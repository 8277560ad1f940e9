"""Repair of a table: take a damaged file out in one commit, which adds its rows again if they are known."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec
import polars as pl
from deltalake.transaction import AddAction

from potstill.events.lake import delta
from potstill.events.lake.checksums import CorruptFile
from potstill.events.lake.delta import LakeUnavailable
from potstill.events.lake.frames import FRAMES, split
from potstill.events.lake.schema import DAY, Table, aligned, with_day
from potstill.events.lake.table import ATTEMPTS, File
from potstill.events.lake.verify import readable_column
from potstill.events.lake.writer import write_rows
from potstill.events.wal import Spool, UnreadableSegment, read
from potstill.storage import AlreadyThere, child, open_storage
from potstill.tables import moment

if TYPE_CHECKING:
    from potstill.events.lake.lake import Lake

#: Folder of damaged files in a table's folder; Delta and its vacuum ignore it.
QUARANTINE = "_quarantine"
#: Metadata of the commit; the join's change feed then reads all rows again.
MARK = {"potstill": "repair"}
#: Columns that tell the rows of a table apart.
_KEYS: dict[Table, list[str]] = {"decisions": ["id", "time"], "rewards": ["id", "time", "reward", "key"]}


def replace_file(lake: Lake, table: Table, file: File, rows: pl.DataFrame | None) -> str:
    """Take a damaged file out of its table, and add its rows again.

    Its bytes are kept in ``_quarantine`` in the table's folder, with the ids that can be read.

    Args:
        lake: The tables.
        table: Name of the table.
        file: The damaged file.
        rows: Its rows, as far as they are known; None if none are.

    Returns:
        Path or address of the quarantined bytes.
    """
    kept = _keep(lake, table, file, _path(lake, table, file))
    take_out(lake, table, file, rows)
    return child(lake.url(table), kept)


def take_out(lake: Lake, table: Table, file: File, rows: pl.DataFrame | None) -> None:
    """Take a file out of its table in one commit, which adds rows in its place, and delete it."""
    path = _path(lake, table, file)
    added = [] if rows is None else write_rows(lake.url(table), aligned(with_day(rows), lake.tables[table].schema()))
    _commit(lake, table, path, file, added)
    open_storage(lake.url(table)).delete(path)


def rows_before_compaction(lake: Lake, table: Table, file: File) -> pl.DataFrame | None:
    """Rows of a file that a compaction made, from the files that it merged; None if they are not all there."""
    path = _path(lake, table, file)
    for actions in _commits(lake, table):
        if path in [unquote(action["add"]["path"]) for action in actions if "add" in action]:
            merged = [unquote(one["remove"]["path"]) for one in actions if "remove" in one]
            return _read_merged(lake, table, file, [name for name in merged if name.startswith(f"{DAY}={file.day}/")])
    return None


def rows_in_log(lake: Lake, table: Table, file: File, spool: Spool, others: pl.DataFrame) -> pl.DataFrame | None:
    """Rows of a file from segments that are in the lake and still in the spool; None if there are none.

    Args:
        lake: The tables.
        table: Name of the table: ``decisions`` or ``rewards``.
        file: The file.
        spool: The spool.
        others: Rows of the other files of the same day.
    """
    frames = [
        FRAMES[table](rows, segment.header.problem)
        for writer in spool.writers()
        for segment in _flushed(spool, writer, lake.transaction(table, writer) or 0)
        if (rows := split(segment.events)[0 if table == "decisions" else 1])
    ]
    if not frames:
        return None
    within = pl.col("time").is_between(moment(file.first), moment(file.last)), pl.col("time").dt.date() == file.day
    found = pl.concat(frames, how="diagonal").filter(*within)
    missing = found.join(others, on=_KEYS[table], how="anti", nulls_equal=True)
    return missing if len(missing) else None


def _flushed(spool: Spool, writer: str, last: int) -> Iterator[Any]:
    """Segments of a writer that the table has; unreadable ones are left out."""
    for path in spool.retained(writer):
        if int(path.stem) <= last:
            with contextlib.suppress(UnreadableSegment, FileNotFoundError):
                yield read(path)


def _read_merged(lake: Lake, table: Table, file: File, paths: Sequence[str]) -> pl.DataFrame | None:
    known = {one.uri: one for one in all_files(lake, table)}
    merged = [known[uri] for path in paths if (uri := child(lake.url(table), path)) in known]
    if len(merged) != len(paths) or sum(one.rows for one in merged) != file.rows:
        return None
    with contextlib.suppress(CorruptFile, FileNotFoundError, pl.exceptions.ComputeError):
        lake.tables[table].checksums.check(merged, remote=True)
        return pl.concat([read_whole(one) for one in merged], how="diagonal")
    return None


def read_whole(file: File) -> pl.DataFrame:
    """Rows of a file with all its columns, also those that the present problem does not have."""
    return pl.scan_parquet(file.uri, hive_partitioning=False, glob=False).collect()


def _path(lake: Lake, table: Table, file: File) -> str:
    return file.uri.removeprefix(f"{lake.url(table)}/")


def all_files(lake: Lake, table: Table) -> list[File]:
    """Files of all versions that the commit log still describes."""
    found: dict[str, File] = {}
    for version in range(lake.version(table) or 0, -1, -1):
        try:
            found |= {file.uri: file for file in lake.files(table, version)}
        except LookupError:
            break
    return list(found.values())


def _commits(lake: Lake, table: Table) -> Iterator[list[dict[str, Any]]]:
    """Actions of the commits that are still there, newest first."""
    log = open_storage(child(lake.url(table), "_delta_log"))
    for version in range(lake.version(table) or 0, -1, -1):
        with contextlib.suppress(FileNotFoundError):
            yield [msgspec.json.decode(line) for line in log.read(f"{version:020}.json").splitlines()]


def _keep(lake: Lake, table: Table, file: File, path: str) -> str:
    """Copy a damaged file to quarantine, and list the ids that can be read."""
    storage, kept = open_storage(lake.url(table)), f"{QUARANTINE}/{path.replace('/', '_')}"
    with contextlib.suppress(FileNotFoundError):
        storage.replace(kept, storage.read(path))
    ids = "\n".join(str(one) for one in readable_column(lake, table, file, "id"))
    about = {"path": path, "day": str(file.day), "rows": file.rows, "first": file.first, "last": file.last}
    storage.replace(f"{kept}.ids", msgspec.json.encode(about) + b"\n" + ids.encode() + b"\n")
    return kept


def _commit(lake: Lake, table: Table, path: str, file: File, added: Sequence[AddAction]) -> None:
    """Take the file out and add others in one commit; nothing if it is no longer in the table.

    Only the newest releases of the library remove a single file, so that the commit is written here. Of several that
    create the commit of one version, exactly one succeeds.
    """
    stored, log = lake.tables[table], open_storage(child(lake.url(table), "_delta_log"))
    for _ in range(ATTEMPTS):
        version = (lake.version(table) or 0) + 1
        if file.uri not in {one.uri for one in stored.files(version - 1)}:
            return
        lines = [msgspec.json.encode(action) for action in _actions(path, file, added)]
        with delta.storage_errors(stored.url), contextlib.suppress(AlreadyThere):
            log.create(f"{version:020}.json", b"\n".join(lines) + b"\n")
            if stored.local:
                delta.sync_commits(Path(stored.url), version, version)
            return
    raise LakeUnavailable(f"{stored.url}: others changed the table at the same time, {ATTEMPTS} times; try again")


def _actions(path: str, file: File, added: Sequence[AddAction]) -> list[dict[str, Any]]:
    """Actions of the commit, as the Delta protocol has them."""
    moment_ms = time.time_ns() // 1_000_000
    removed = {
        "path": path,
        "deletionTimestamp": moment_ms,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": {DAY: str(file.day)},
        "size": file.bytes,
    }
    info = {"timestamp": moment_ms, "operation": "WRITE", "operationParameters": {"mode": "Append"}, **MARK}
    return [{"commitInfo": info}, {"remove": removed}, *({"add": _add(one)} for one in added)]


def _add(file: AddAction) -> dict[str, Any]:
    return {
        "path": file.path,
        "partitionValues": dict(file.partition_values),
        "size": file.size,
        "modificationTime": file.modification_time,
        "dataChange": True,
        "stats": file.stats,
    }


def is_repair(actions: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the actions of a commit are those of a repair."""
    return any(action.get("commitInfo", {}).get(name) == value for action in actions for name, value in MARK.items())
