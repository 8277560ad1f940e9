"""Files that were appended to a table between two of its versions, also where compactions came between."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from potstill.events.lake.checksums import CorruptFile
from potstill.events.lake.repair import is_repair
from potstill.events.lake.schema import Table
from potstill.events.lake.table import File, VersionGone, check_files_exist
from potstill.storage import child, open_storage

if TYPE_CHECKING:
    from potstill.events.lake.lake import Lake


def arrived_files(lake: Lake, table: Table, since: int | None, version: int) -> list[File] | None:
    """Files with the rows appended after one version and up to another; None if that is no longer known.

    They may be files that a compaction has replaced and a vacuum has not yet removed.

    Args:
        lake: The tables.
        table: Name of the table.
        since: The earlier version; None if there was no table.
        version: The later version.
    """
    files = lake.files(table, version)
    if since is None:
        return files
    try:
        before = {file.uri for file in lake.files(table, since)}
    except VersionGone:
        return None
    if before <= {file.uri for file in files}:  # nothing was compacted or deleted
        return [file for file in files if file.uri not in before]
    try:
        return _appended(lake, table, range(since + 1, version + 1))
    except FileNotFoundError:
        return None


def _appended(lake: Lake, table: Table, versions: Iterable[int]) -> list[File]:
    """Files that commits appended, by the commit log; `FileNotFoundError` if the log or a file is gone or replaced.

    Files that a compaction replaced are kept; those that were deleted, and what a compaction made of them, are not.
    """
    log = open_storage(child(lake.url(table), "_delta_log"))
    present: dict[str, File] = {}
    replaced: dict[str, File] = {}
    for version in versions:
        actions = [msgspec.json.decode(line) for line in log.read(f"{version:020}.json").splitlines()]
        if is_repair(actions):
            raise FileNotFoundError(f"commit {version} replaced a damaged file: its rows are not told from new ones")
        for remove in (action["remove"] for action in actions if "remove" in action):
            path = unquote(remove["path"])
            if remove["dataChange"]:
                present.pop(path, None)
                replaced = {kept: file for kept, file in replaced.items() if _folder(kept) != _folder(path)}
            elif path in present:
                replaced[path] = present.pop(path)
        for add in (action["add"] for action in actions if "add" in action):
            if add["dataChange"]:
                present[unquote(add["path"])] = _file(lake.url(table), add)
    check_files_exist(lake.url(table), replaced)
    _check_intact(lake, table, replaced.values())
    return [*present.values(), *replaced.values()]


def _check_intact(lake: Lake, table: Table, replaced: Iterable[File]) -> None:
    """`FileNotFoundError` if a file that a compaction replaced is damaged: its rows are in the table, and intact."""
    try:
        lake.tables[table].checksums.check(replaced)
    except CorruptFile as error:
        raise FileNotFoundError(str(error)) from error


def _folder(path: str) -> str:
    """Folder of a day."""
    return path.rpartition("/")[0]


def _file(url: str, add: dict[str, Any]) -> File:
    day, stats = add["partitionValues"]["day"], msgspec.json.decode(add["stats"])
    first = stats["minValues"].get("time", f"{day}T00:00:00Z")
    last = stats["maxValues"].get("time", f"{day}T23:59:59.999Z")
    return File(
        uri=child(url, unquote(add["path"])),
        day=dt.date.fromisoformat(day),
        rows=stats["numRecords"],
        bytes=add["size"],
        first=_microseconds(first),
        last=_microseconds(last) + 999,  # Delta rounds down to milliseconds
    )


def _microseconds(moment: str) -> int:
    return (dt.datetime.fromisoformat(moment) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
