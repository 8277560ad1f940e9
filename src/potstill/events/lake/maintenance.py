"""Maintenance of the lake: compaction, vacuum of unused files, and retention.

All of it may be done while others append and read.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter

import msgspec
from deltalake import DeltaTable

from potstill.clock import now as present
from potstill.errors import PotstillError
from potstill.events.lake import delta
from potstill.events.lake.lake import Lake
from potstill.events.lake.schema import DAY, TABLES, Table

#: Files being written are not in a table yet, and readers still use files that no longer are.
SHORTEST = 3600
HOUR = 3600


class InvalidRetention(PotstillError, ValueError):
    """A retention is so short that files in use would be deleted."""


class CompactReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the compaction of a table.

    Attributes:
        table: Name of the table.
        files_before: Number of files before.
        files_after: Number of files after.
        bytes_before: Size of the files before.
        bytes_after: Size of the files after.
    """

    table: Table
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


class VacuumReport(msgspec.Struct, frozen=True, kw_only=True):
    """Files of a table that were deleted from storage, or would be."""

    table: Table
    files: list[str]


class ExpireReport(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that were removed from a table: those of days before `before`."""

    table: Table
    before: dt.date
    rows: int
    files: int


def compact(lake: Lake) -> list[CompactReport]:
    """Merge small files of a day, and clear expired commits from the log.

    The small files stay in storage, for readers that are at them, until `vacuum`.

    Raises:
        CorruptFile: A file to be merged is damaged; its table was not changed.
    """
    return [_compact(lake, table) for table in TABLES if lake.version(table) is not None]


def vacuum(lake: Lake, older_than: float, *, dry_run: bool = False) -> list[VacuumReport]:
    """Delete files from storage that no table has referred to for a while.

    Args:
        lake: The tables.
        older_than: Seconds since a file was taken out of its table, or written by someone who then crashed; rounded up
            to hours. At least an hour. Versions of the tables from before then cannot be read any more.
        dry_run: Only say which.
    """
    if older_than < SHORTEST:
        raise InvalidRetention(
            f"older_than must be at least {SHORTEST} seconds, got {older_than}: "
            "files that are being written or read are not to be deleted"
        )
    hours = math.ceil(older_than / HOUR)

    def clean(handle: DeltaTable) -> list[str]:
        return handle.vacuum(hours, dry_run, enforce_retention_duration=False, full=True)

    reports = []
    for table in TABLES:
        if lake.version(table) is not None:
            stored = lake.tables[table]
            reports.append(VacuumReport(table=table, files=stored.change(clean)))
            if not dry_run:
                stored.checksums.prune(stored.files())
    return reports


def expire(lake: Lake, older_than: float, *, now: int | None = None) -> list[ExpireReport]:
    """Remove decisions and rewards of old days; observations stay, because policies are learnt from them.

    Whoever has not joined them by then has lost them. `vacuum` deletes the files later.

    Args:
        lake: The tables.
        older_than: Seconds; only UTC days that ended longer ago than that.
        now: Microseconds since 1970, UTC; the present if left out.
    """
    moment = dt.datetime.fromtimestamp((present() if now is None else now) / 1e6 - older_than, dt.UTC)
    tables: tuple[Table, ...] = ("decisions", "rewards")
    return [_expire(lake, table, moment.date()) for table in tables if lake.version(table) is not None]


def _compact(lake: Lake, table: Table) -> CompactReport:
    stored, before = lake.tables[table], lake.files(table)
    of_day = Counter(file.day for file in before)
    # What is merged gets a new checksum: damage must be found now or never.
    stored.checksums.check((file for file in before if of_day[file.day] > 1), remote=True)
    stored.change(_optimize)
    after, known = lake.files(table), {file.uri for file in before}
    stored.checksums.record(file for file in after if file.uri not in known)
    return CompactReport(
        table=table,
        files_before=len(before),
        files_after=len(after),
        bytes_before=sum(file.bytes for file in before),
        bytes_after=sum(file.bytes for file in after),
    )


def _optimize(handle: DeltaTable) -> None:
    # One task at a time: memory matters more here than speed.
    handle.optimize.compact(writer_properties=delta.PARQUET, max_concurrent_tasks=1)
    handle.create_checkpoint()
    handle.cleanup_metadata()


def _expire(lake: Lake, table: Table, before: dt.date) -> ExpireReport:
    gone = [file for file in lake.files(table) if file.day < before]
    if gone:
        lake.tables[table].change(lambda handle: handle.delete(f"{DAY} < '{before.isoformat()}'"))
    return ExpireReport(table=table, before=before, rows=sum(file.rows for file in gone), files=len(gone))
