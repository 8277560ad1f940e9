"""How the lake's tables are kept: properties, Parquet settings, and what is done about storage that is away."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import polars as pl
from arro3.core import RecordBatchReader
from arro3.core import Schema as ArrowSchema
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    Field,
    Schema,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError

from potstill.errors import PotstillError
from potstill.events.lake.schema import DAY

#: Checkpoints often, since a reader takes the last one and every commit after it. The log of commits is kept for as
#: long as joins may want the list of files of an earlier version. Only `time` has statistics in it.
PROPERTIES = {
    "delta.checkpointInterval": "20",
    "delta.logRetentionDuration": "interval 7 days",
    "delta.deletedFileRetentionDuration": "interval 7 days",
    "delta.dataSkippingStatsColumns": "time",
}

#: Of an object store. A request that fails is tried again for a few seconds; then the store counts as away.
STORAGE_OPTIONS: Mapping[str, str] = {
    "connect_timeout": "5s",
    "timeout": "60s",
    "max_retries": "4",
    "retry_timeout": "20s",
    "backoff_config.init_backoff": "100ms",
    "backoff_config.max_backoff": "3s",
}

#: Ids are nearly all distinct: no dictionary, and bounds that would exclude nothing. Times go up by little.
#: Dictionaries are given up early: on numbers that hardly repeat they cost more than they save (15% of 38 features).
PARQUET = WriterProperties(
    compression="ZSTD",
    compression_level=1,
    max_row_group_size=131_072,
    dictionary_page_size_limit=131_072,
    default_column_properties=ColumnProperties(statistics_enabled="CHUNK"),
    column_properties={
        "id": ColumnProperties(dictionary_enabled=False, statistics_enabled="NONE"),
        "time": ColumnProperties(dictionary_enabled=False, statistics_enabled="CHUNK", encoding="DELTA_BINARY_PACKED"),
    },
)


#: Of the files of a stream, which may go over hundreds of days. `compact` makes large ones of them.
STREAM_FILE_BYTES = 8 * 1024 * 1024


class LakeUnavailable(PotstillError, OSError):
    """The lake's storage cannot be reached, or refuses. Try again: what did go through is not done twice."""


def create(url: str, schema: pl.Schema, options: dict[str, str]) -> None:
    """Make a table unless there is one. Of several that do so at once all go on with the same table."""
    DeltaTable.create(
        url,
        schema=Schema.from_arrow(arrow_schema(schema)),
        mode="ignore",
        partition_by=[DAY],
        configuration=PROPERTIES,
        storage_options=options,
    )


def append(table: DeltaTable, rows: Any, writer: str, number: int, file_bytes: int | None = None) -> None:
    """Add rows in one commit that carries a number of their writer.

    The library holds a file in memory until it is full, or all rows are there: one for each day.

    Raises:
        CommitFailedError: Another process has committed for the same writer meanwhile, or changed the columns.
    """
    write_deltalake(
        table,
        rows,
        mode="append",
        writer_properties=PARQUET,
        target_file_size=file_bytes,
        commit_properties=CommitProperties(app_transactions=[Transaction(writer, number)]),
    )


def arrow_schema(schema: pl.Schema) -> ArrowSchema:
    """A schema in Arrow's terms."""
    return RecordBatchReader.from_arrow(schema.to_frame()).schema


def schema_of(table: DeltaTable) -> pl.Schema:
    """The columns that a table has."""
    return pl.Schema(table.schema().to_arrow())


def fields(schema: pl.Schema) -> list[Field]:
    """A schema's columns in Delta's terms."""
    return Schema.from_arrow(arrow_schema(schema)).fields


@contextmanager
def storage_errors(where: str) -> Iterator[None]:
    """Turn whatever the storage says into `LakeUnavailable`; conflicts of commits pass through."""
    try:
        yield
    except (CommitFailedError, LakeUnavailable):
        raise
    except BaseException as error:
        if not _of_storage(error):
            raise
        raise LakeUnavailable(f"the lake at {where} cannot be used now: {_plain(error)}") from error


def _of_storage(error: BaseException) -> bool:
    """Part of what comes out of the library is a bare Exception, or a panic, which is not even that."""
    known = isinstance(error, (OSError, DeltaError, pl.exceptions.ComputeError))
    return known or type(error) is Exception or type(error).__name__ == "PanicException"


def _plain(error: BaseException) -> str:
    """An error's text in one line, without the colours of a terminal."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).replace("↳", "").split())


def sync_commits(table: Path, first: int, last: int) -> None:
    """Make commits of a table in a folder, and the files that they added, survive a loss of power."""
    log = table / "_delta_log"
    paths = [log / "_last_checkpoint"]
    for version in range(first, last + 1):
        commit = log / f"{version:020}.json"
        paths += [table / path for path in _added(commit)]
        paths += [commit, log / f"{version:020}.checkpoint.parquet"]
    for path in [*filter(Path.exists, paths), *{path.parent for path in paths}]:
        _sync(path)


def _added(commit: Path) -> list[str]:
    actions = [msgspec.json.decode(line) for line in commit.read_bytes().splitlines()]
    return [unquote(action["add"]["path"]) for action in actions if "add" in action]


def _sync(path: Path) -> None:
    """Of a file or a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
