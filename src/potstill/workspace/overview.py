"""Overview of a workspace's events: rows in the lake, what is still in the log, and what went wrong."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from potstill.events import now
from potstill.events.wal import QUARANTINE, Spool
from potstill.workspace.workspace import Workspace

if TYPE_CHECKING:
    from potstill.events.lake import FlushState


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Overview of a workspace's events. Times are microseconds since 1970, UTC.

    Attributes:
        rows: Number of rows of each table; None if the lake cannot be read.
        lake_error: Why the lake cannot be read.
        spool: Folder of this machine's log.
        segments: Number of its segments that are not in the lake, open ones included.
        bytes: Their size.
        lag_seconds: Age of the oldest of them; None if there is none.
        flush: State of the last flush; None if there was none.
        quarantine: Files of unreadable bytes that were cut off the log.
        quarantine_bytes: Their size.
    """

    rows: dict[str, int | None]
    lake_error: str | None
    spool: str
    segments: int
    bytes: int
    lag_seconds: float | None
    flush: FlushState | None
    quarantine: list[str]
    quarantine_bytes: int


def overview(workspace: Workspace) -> Overview:
    """Overview of a workspace's events now. It reads no rows."""
    from potstill.events.lake import last_flush  # here: workers of a service import this room, and no tables

    spool = Spool(workspace.spool)
    pending, quarantine = spool.pending(), _files(spool.path / QUARANTINE)
    rows, lake_error = _rows(workspace)
    return Overview(
        rows=rows,
        lake_error=lake_error,
        spool=str(spool.path),
        segments=pending.segments,
        bytes=pending.bytes,
        lag_seconds=None if pending.oldest is None else max(now() - pending.oldest, 0) / 1e6,
        flush=last_flush(spool),
        quarantine=[str(path) for path in quarantine],
        quarantine_bytes=sum(path.stat().st_size for path in quarantine),
    )


def _rows(workspace: Workspace) -> tuple[dict[str, int | None], str | None]:
    from potstill.events.lake import TABLES, LakeUnavailable

    rows: dict[str, int | None] = dict.fromkeys(TABLES)
    try:
        for table in TABLES:
            rows[table] = sum(file.rows for file in workspace.lake.files(table))
    except LakeUnavailable as error:
        return rows, str(error)
    return rows, None


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
