"""Delta Lake tables of decisions, rewards and observations, in a folder or an object store.

Every append is one commit with a number of its writer. A table that has this number, or a later one, ignores the
append. A writer that does not know whether an append succeeded can therefore repeat it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import polars as pl
from deltalake import DeltaTable

from potstill.errors import PotstillError
from potstill.events.lake import delta
from potstill.events.lake.delta import has_number
from potstill.events.lake.schema import (
    DAY,
    TABLES,
    UTC_DAY,
    Table,
    aligned,
    missing_columns,
    table_schema,
    with_day,
)
from potstill.events.lake.table import File, LakeTable, VersionGone
from potstill.events.lake.writer import write_stream
from potstill.events.validate import check_names
from potstill.problem import Problem
from potstill.storage import child

#: Characters of a path that the library cannot handle.
_UNUSABLE = frozenset("%[]^|\\")


class UnusablePath(PotstillError, ValueError):
    """Delta Lake cannot use a path."""


class Lake:
    """The tables ``decisions``, ``rewards`` and ``observations`` of one problem.

    Unreachable storage raises `LakeUnavailable`; collecting a lazy frame raises what Polars raises.

    Args:
        root: A folder, or an address such as ``s3://bucket/prefix``; created with the first row.
        problem: Gives the columns their types.
        storage_options: Time limits and retries of an object store, as `deltalake` takes them. Its address and
            credentials come from the environment (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, …).
    """

    def __init__(self, root: str | Path, problem: Problem, storage_options: Mapping[str, str] | None = None) -> None:
        check_names(problem)
        self.root, self.problem = str(root), problem
        if unusable := _UNUSABLE.intersection(self.root):
            raise UnusablePath(f"{self.root}: Delta Lake cannot use a path with {' '.join(sorted(unusable))} in it")
        self.options = {} if "://" not in self.root else {**delta.STORAGE_OPTIONS, **(storage_options or {})}
        self._without: frozenset[str] = frozenset()
        self.reopen()

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "problem": self.problem, "options": self.options, "_without": self._without}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Open the same tables in another process."""
        self.__dict__.update(state)
        self.reopen()

    def reopen(self) -> None:
        """Drop cached handles: a table may have been moved away or replaced."""
        self.tables: dict[Table, LakeTable] = {table: self._store(table) for table in TABLES}

    def schema(self, table: Table) -> pl.Schema:
        """Columns of a table under the present problem."""
        return table_schema(table, self.problem)

    def url(self, table: Table) -> str:
        """Path or address of a table."""
        return child(self.root, table)

    def version(self, table: Table) -> int | None:
        """Number of a table's last commit; None if there is no table yet."""
        handle = self.tables[table].current()
        return None if handle is None else handle.version()

    def transaction(self, table: Table, writer: str) -> int | None:
        """Last number of a writer's appends; None if there is none."""
        handle = self.tables[table].current()
        return None if handle is None else handle.transaction_version(writer)

    def prepare(self, table: Table) -> None:
        """Create or widen a table for the present problem; `SchemaMismatch` if a column has another type."""
        self.tables[table].prepare(self.schema(table), self.schema(table))

    def append(self, table: Table, frame: pl.DataFrame, *, writer: str, number: int, after: int | None = None) -> bool:
        """Add rows exactly once: in one commit with a number of their writer.

        Columns that the frame lacks are null, columns that the table lacks are added to it, and `day` is computed.

        Args:
            table: Name of the table.
            frame: The rows.
            writer: Name of the writer.
            number: Number of this append; a writer's numbers rise.
            after: The writer's last number when the frame was put together (0 for none). If it is another one at the
                time of the commit, and still below `number`, this is `Overtaken`.

        Returns:
            False if the table had that number already, or a later one, and nothing was added.
        """
        return self._append(table, with_day(frame), (), writer=writer, number=number, after=after)

    def append_stream(
        self, table: Table, batches: Iterable[pl.DataFrame], *, writer: str, number: int, after: int | None = None
    ) -> bool:
        """Add the rows of many frames with equal columns in one commit, with few of them in memory.

        Returns:
            False as in `append`.
        """
        if has_number(self.tables[table].current(), writer, number, after):
            return False
        frames = (with_day(batch) for batch in batches)
        first = next(frames, None)
        if first is None:
            first = self.schema(table).to_frame()
        return self._append(table, first, frames, writer=writer, number=number, after=after)

    def _append(
        self,
        table: Table,
        first: pl.DataFrame,
        others: Iterable[pl.DataFrame],
        *,
        writer: str,
        number: int,
        after: int | None,
    ) -> bool:
        stored = self.tables[table]
        if has_number(stored.current(), writer, number, after):
            return False
        stored.prepare(first.schema, self.schema(table))
        columns = stored.schema()
        files = write_stream(self.url(table), (aligned(frame, columns) for frame in chain([first], others)))

        def add(handle: DeltaTable) -> bool:
            if has_number(handle, writer, number, after):
                return False
            delta.append(handle, files, writer, number)
            return True

        return stored.change(add)

    def files(self, table: Table, version: int | None = None) -> list[File]:
        """Files of a table, now or at a version (`VersionGone` if that is no longer known)."""
        return [file for file in self.tables[table].files(version) if file.uri not in self._without]

    def without(self, uris: Iterable[str]) -> Lake:
        """The same lake as if these files were not in their tables."""
        lake = Lake(self.root, self.problem, self.options)
        lake._without = frozenset(uris)
        return lake

    def scan(
        self,
        table: Table,
        version: int | None = None,
        since: int | None = None,
        days: Collection[dt.date] | None = None,
    ) -> pl.LazyFrame:
        """Rows of a table with the columns of the present problem; columns that old files lack are null.

        Args:
            table: Name of the table.
            version: Version of the table; the newest if left out.
            since: Leave out files that were in this version already. Compacted files count as new. If the version is
                gone, nothing is left out.
            days: Only rows of these UTC days.
        """
        files = self.files(table, version)
        if since is not None:
            files = self._added(table, files, since)
        if days is not None:
            files = [file for file in files if file.day in days]
        return self.read(table, files)

    def read(self, table: Table, files: Iterable[File]) -> pl.LazyFrame:
        """Rows of some files of a table, with the columns of the present problem.

        Raises:
            CorruptFile: A file is damaged, if it is local and has a checksum. An object store verifies what it stores
                and sends; `potstill verify` reads such files too.
        """
        found, schema = list(files), self.schema(table)
        if not found:
            return schema.to_frame().lazy()
        self.tables[table].checksums.check(found)
        handle = self.tables[table].current()
        if handle is not None:
            missing_columns(schema, delta.schema_of(handle), self.url(table))
        in_files = {name: dtype for name, dtype in schema.items() if name != DAY}
        # No Hive partitioning: parent folders may look like partitions too.
        rows = pl.scan_parquet(
            [file.uri for file in found],
            schema=in_files,
            hive_partitioning=False,
            missing_columns="insert",
            extra_columns="ignore",
            glob=False,
        )
        return rows.with_columns(UTC_DAY).select(schema.names())

    def _store(self, table: Table) -> LakeTable:
        return LakeTable(self.url(table), self.options)

    def _added(self, table: Table, files: list[File], since: int) -> list[File]:
        try:
            known = {file.uri for file in self.files(table, since)}
        except VersionGone:
            return files
        return [file for file in files if file.uri not in known]
