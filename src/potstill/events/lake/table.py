"""One Delta table: open, create, widen, change and list its files."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import polars as pl
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from potstill.errors import PotstillError
from potstill.events.lake import delta
from potstill.events.lake.checksums import Checksums
from potstill.events.lake.delta import LakeUnavailable, storage_errors
from potstill.events.lake.schema import DAY, missing_columns
from potstill.files import make_folder
from potstill.storage import child, open_storage

T = TypeVar("T")
#: Attempts of a commit that conflicts with others, on top of the retries of the library.
ATTEMPTS = 10
#: Delta rounds times in its statistics down to milliseconds.
_STATISTICS_STEP = dt.timedelta(milliseconds=1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class VersionGone(PotstillError, LookupError):
    """The commit log of a table does not have that version any more, or not yet."""


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a table.

    Attributes:
        uri: Path or address.
        day: The UTC day of all its rows.
        rows: Number of rows.
        bytes: Size in bytes.
        first: No row's time is before this; microseconds since 1970, UTC.
        last: No row's time is after this.
    """

    uri: str
    day: dt.date
    rows: int
    bytes: int
    first: int
    last: int


class LakeTable:
    """A Delta table, which may not exist yet.

    Args:
        url: A folder, or an address in an object store.
        options: Options of an object store, as `deltalake` takes them.
    """

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self.url, self.options = url, dict(options)
        self.local = "://" not in url
        self.checksums = Checksums(url)
        self._handle: DeltaTable | None = None

    def current(self) -> DeltaTable | None:
        """Handle of the table as it is now; None if there is none."""
        with storage_errors(self.url):
            known = self._handle
            if known is not None:
                try:
                    known.update_incremental()
                    return known
                except DeltaError:  # commits were cleaned up, or the table was replaced
                    self._handle = None
            try:
                self._handle = DeltaTable(self.url, storage_options=self.options)
            except TableNotFoundError:
                return None
            return self._handle

    def at(self, version: int) -> DeltaTable:
        """Handle of the table at a version; `VersionGone` if that is no longer known."""
        with storage_errors(self.url):
            try:
                return DeltaTable(self.url, version=version, storage_options=self.options)
            except DeltaError as error:
                raise VersionGone(f"{self.url} has no version {version} any more, or not yet") from error

    def files(self, version: int | None = None) -> list[File]:
        """Files, now or at a version, in order of time."""
        handle = self.current() if version is None else self.at(version)
        if handle is None:
            return []
        with storage_errors(self.url):
            rows = pl.DataFrame(handle.get_add_actions(flatten=True)).iter_rows(named=True)
        return sorted(map(self._file, rows), key=lambda file: (file.day, file.first, file.uri))

    def schema(self) -> pl.Schema:
        """Columns; `LakeUnavailable` if there is no table."""
        return delta.schema_of(self._existing())

    def prepare(self, columns: pl.Schema, otherwise: pl.Schema) -> None:
        """Add the columns that the table lacks; create the table if there is none."""
        handle = self.current()
        if handle is None:
            self._create(otherwise)
        elif not missing_columns(columns, delta.schema_of(handle), self.url):
            return

        def widen(handle: DeltaTable) -> None:
            if missing := missing_columns(columns, delta.schema_of(handle), self.url):
                handle.alter.add_columns(delta.fields(missing))

        self.change(widen)

    def change(self, act: Callable[[DeltaTable], T], attempts: int = ATTEMPTS) -> T:
        """Change the table, and retry after a conflicting commit; the change is durable on return.

        Raises:
            LakeUnavailable: The storage is away, others were faster each time, or there is no table.
        """
        for _ in range(attempts):
            handle = self._existing()
            before = handle.version()
            with suppress(CommitFailedError), storage_errors(self.url):
                done = act(handle)
                self._sync(before + 1, handle.version())
                return done
        raise LakeUnavailable(f"{self.url}: others changed the table at the same time, {attempts} times; try again")

    def _existing(self) -> DeltaTable:
        handle = self.current()
        if handle is None:
            raise LakeUnavailable(f"there is no table at {self.url} any more")
        return handle

    def _create(self, schema: pl.Schema) -> None:
        try:
            with storage_errors(self.url):
                if self.local:  # the library's files go by the umask: the folder keeps them private
                    make_folder(Path(self.url))
                delta.create(self.url, schema, self.options)
                self._sync(0, 0)
        except (CommitFailedError, LakeUnavailable):
            if self.current() is None:  # else another process has created it
                raise

    def _sync(self, first: int, last: int) -> None:
        if self.local:
            delta.sync_commits(Path(self.url), first, last)

    def _file(self, row: Mapping[str, Any]) -> File:
        day: dt.date = row[f"partition.{DAY}"]
        midnight = dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC)
        first = row.get("min.time") or midnight
        last = row.get("max.time")
        end = last + _STATISTICS_STEP if last else midnight + dt.timedelta(days=1)
        return File(
            uri=child(self.url, row["path"]),
            day=day,
            rows=row["num_records"],
            bytes=row["size_bytes"],
            first=_microseconds(first),
            last=_microseconds(end) - 1,
        )


def check_files_exist(url: str, paths: Iterable[str]) -> None:
    """`FileNotFoundError` if one of some files of a table is gone."""
    storage = open_storage(url)
    folders: dict[str, set[str]] = {}
    for path in paths:
        folder = path.rpartition("/")[0]
        if folder not in folders:
            folders[folder] = {child(folder, name) for name in storage.names(folder)}
        if path not in folders[folder]:
            raise FileNotFoundError(child(url, path))


def _microseconds(moment: dt.datetime) -> int:
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)
