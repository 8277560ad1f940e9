"""Settings of the lake's tables: table properties, Parquet, and errors of unreachable storage."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
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
)
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from potstill.errors import PotstillError
from potstill.events.lake.schema import DAY
from potstill.storage import explained

#: Frequent checkpoints: a reader loads the last one and every commit after it. Commits are kept for as long as joins
#: may need the file list of an earlier version. Only `time` has statistics.
PROPERTIES = {
    "delta.checkpointInterval": "20",
    "delta.logRetentionDuration": "interval 7 days",
    "delta.deletedFileRetentionDuration": "interval 7 days",
    "delta.dataSkippingStatsColumns": "time",
}

#: Options of an object store. A failed request is retried for a few seconds; then the store counts as unavailable.
STORAGE_OPTIONS: Mapping[str, str] = {
    "connect_timeout": "5s",
    "timeout": "60s",
    "max_retries": "4",
    "retry_timeout": "20s",
    "backoff_config.init_backoff": "100ms",
    "backoff_config.max_backoff": "3s",
}

#: Ids are nearly all distinct: no dictionary, and no bounds, which would exclude nothing. Times rise in small steps.
#: Dictionaries have a low limit: for numbers that rarely repeat they cost more than they save (15% of 38 features).
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


class LakeUnavailable(PotstillError, OSError):
    """The storage of the lake is unreachable or refuses. Retry: completed work is not repeated."""


class Overtaken(PotstillError, RuntimeError):
    """Another process has appended for the same writer since the rows were prepared; prepare them again."""


def has_number(handle: DeltaTable | None, writer: str, number: int, after: int | None = None) -> bool:
    """Whether a table has a writer's number already; `Overtaken` if not, and the last number is no longer `after`."""
    last = (handle.transaction_version(writer) if handle else None) or 0
    if last < number and after is not None and last != after:
        raise Overtaken(f"writer {writer} is at {last}, not at {after} any more")
    return last >= number


def create(url: str, schema: pl.Schema, options: dict[str, str]) -> None:
    """Create a table unless there is one. Concurrent callers get the same table."""
    DeltaTable.create(
        url,
        schema=Schema.from_arrow(arrow_schema(schema)),
        mode="ignore",
        partition_by=[DAY],
        configuration=PROPERTIES,
        storage_options=options,
    )


def append(table: DeltaTable, files: Sequence[AddAction], writer: str, number: int) -> None:
    """Add written files in one commit with a number of their writer.

    Raises:
        CommitFailedError: Another process has committed for the same writer meanwhile, or changed the columns.
    """
    table.create_write_transaction(
        list(files),
        "append",
        table.schema(),
        partition_by=[DAY],
        commit_properties=CommitProperties(app_transactions=[Transaction(writer, number)]),
    )
    table.update_incremental()  # the handle must know its own commit, which is synced next


def arrow_schema(schema: pl.Schema) -> ArrowSchema:
    """A schema as Arrow has it."""
    return RecordBatchReader.from_arrow(schema.to_frame()).schema


def schema_of(table: DeltaTable) -> pl.Schema:
    """Columns of a table."""
    return pl.Schema(table.schema().to_arrow())


def fields(schema: pl.Schema) -> list[Field]:
    """Columns of a schema as Delta has them."""
    return Schema.from_arrow(arrow_schema(schema)).fields


@contextmanager
def storage_errors(where: str) -> Iterator[None]:
    """Turn errors of the storage into `LakeUnavailable`; commit conflicts pass through."""
    try:
        yield
    except (CommitFailedError, LakeUnavailable):
        raise
    except BaseException as error:
        if not _of_storage(error):
            raise
        raise LakeUnavailable(f"the lake at {where} cannot be used now: {_plain(error)}") from error


def _of_storage(error: BaseException) -> bool:
    """The library raises bare Exceptions too, and panics, which are not Exceptions."""
    known = isinstance(error, (OSError, DeltaError, pl.exceptions.ComputeError))
    return known or type(error) is Exception or type(error).__name__ == "PanicException"


def _plain(error: BaseException) -> str:
    """Text of an error in one line, without terminal colours."""
    return explained(" ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).replace("↳", "").split()))


def sync_commits(table: Path, first: int, last: int) -> None:
    """Sync commits of a local table, the files that they added, and every folder that names one of them, to disk.

    A file is lost with its folder if the entry of a new folder ``day=...`` in the table's folder is not on disk.
    """
    log = table / "_delta_log"
    paths = [log / "_last_checkpoint"]
    for version in range(first, last + 1):
        commit = log / f"{version:020}.json"
        paths += [table / path for path in _added(commit)]
        paths += [commit, log / f"{version:020}.checkpoint.parquet"]
    folders = {folder for path in paths for folder in path.parents if folder.is_relative_to(table)}
    for path in [*filter(Path.exists, paths), *sorted(folders, reverse=True), table.parent]:
        _sync(path)


def _added(commit: Path) -> list[str]:
    actions = [msgspec.json.decode(line) for line in commit.read_bytes().splitlines()]
    return [unquote(action["add"]["path"]) for action in actions if "add" in action]


def _sync(path: Path) -> None:
    """Sync a file or a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
