"""Verification of a table: every data file is read whole, and compared with what its commit says."""

from __future__ import annotations

import datetime as dt
import io
from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl

from potstill.events.lake.schema import Table
from potstill.events.lake.table import File
from potstill.storage import open_storage

if TYPE_CHECKING:
    from potstill.events.lake.lake import Lake

#: Ids of a damaged file that a report names.
NAMED = 20


class DamagedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A damaged data file.

    Attributes:
        table: Its table.
        uri: Path or address.
        day: The UTC day of its rows.
        rows: Number of its rows.
        what: What is wrong.
        ids: Some ids of its rows, as far as they are readable; damaged ones may be among them.
        cuts: Cuts of its observations, as far as they are readable.
    """

    table: Table
    uri: str
    day: dt.date
    rows: int
    what: str
    ids: list[str] = []
    cuts: list[int] = []

    @property
    def in_words(self) -> str:
        """What is damaged, in one line."""
        cuts = f" of cut {', '.join(map(str, self.cuts))}" if self.cuts else ""
        ids = f", among them {', '.join(self.ids[:3])}" if self.ids else ""
        return f"{self.uri}: {self.what}; {self.rows:,} rows of {self.day}{cuts} are affected{ids}"


class TableReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the verification of a table.

    Attributes:
        table: Name of the table.
        files: Number of its files.
        bytes: Their size.
        unchecked: Number of files without a checksum that look intact.
        damaged: Damaged files.
        records: Damaged records of checksums, in words.
    """

    table: Table
    files: int
    bytes: int
    unchecked: int
    damaged: list[DamagedFile]
    records: list[str]


def verify_table(lake: Lake, table: Table, *, seal: bool = False) -> TableReport:
    """Read all files of a table and compare them with their checksums and their commits.

    Args:
        lake: The tables.
        table: Name of the table.
        seal: Record the checksums of intact files that have none.
    """
    files, checksums = lake.files(table), lake.tables[table].checksums
    damaged = [damage for file in files if (damage := verify_file(lake, table, file))]
    intact = {file.uri for file in files} - {damage.uri for damage in damaged}
    unchecked = [file for file in files if file.uri in intact and checksums.of(file) is None]
    if seal:
        checksums.record(unchecked)
    return TableReport(
        table=table,
        files=len(files),
        bytes=sum(file.bytes for file in files),
        unchecked=0 if seal else len(unchecked),
        damaged=damaged,
        records=checksums.damage(),
    )


def verify_file(lake: Lake, table: Table, file: File) -> DamagedFile | None:
    """Read a file and compare it with its checksum and its commit; None if it is intact."""
    what = lake.tables[table].checksums.fault(file) or _unlike_commit(lake, table, file)
    if what is None:
        return None
    ids, cuts = readable_column(lake, table, file, "id"), readable_column(lake, table, file, "cut")
    return DamagedFile(
        table=table,
        uri=file.uri,
        day=file.day,
        rows=file.rows,
        what=what,
        ids=[str(one) for one in ids[:NAMED]],
        cuts=sorted({int(cut) for cut in cuts}),
    )


def readable_column(lake: Lake, table: Table, file: File, name: str) -> list[Any]:
    """Values of a column of a damaged file without nulls and repeats; empty if they cannot be read."""
    try:
        column = pl.read_parquet(io.BytesIO(_read(lake, table, file)), columns=[name])[name]
        return list(column.drop_nulls().unique(maintain_order=True))
    except BaseException as error:
        _raise_ours(error)
        return []


def _unlike_commit(lake: Lake, table: Table, file: File) -> str | None:
    """How the contents of a file differ from what its commit says; None if they do not."""
    try:
        frame = pl.read_parquet(io.BytesIO(_read(lake, table, file)))
    except BaseException as error:
        _raise_ours(error)
        return f"it cannot be read: {error}"
    if len(frame) != file.rows:
        return f"it has {len(frame):,} rows, but its commit says {file.rows:,}"
    times = frame.select(first=pl.col("time").min().dt.epoch("us"), last=pl.col("time").max().dt.epoch("us")).row(0)
    if len(frame) and not file.first <= times[0] <= times[1] <= file.last:
        return "its times are outside those that its commit says"
    return None


def _read(lake: Lake, table: Table, file: File) -> bytes:
    return open_storage(lake.url(table)).read(file.uri.removeprefix(f"{lake.url(table)}/"))


def _raise_ours(error: BaseException) -> None:
    """Raise what does not come from reading a damaged file; the library also panics, which is no Exception."""
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error
