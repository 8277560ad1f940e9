"""Delta tables in the simulated store: as much of the `deltalake` library as the lake's code uses.

A commit is a file ``_delta_log/N.json`` that can be created once. An append that finds its number taken goes on with
the next one, unless the commits in between are of the same writer or change the columns: the library's own rule.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import uuid
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import polars as pl
from deltalake import Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction
from simulation.store import SimulatedStorage, Store

from potstill.events.lake.schema import DAY
from potstill.storage import AlreadyThere

_scan_parquet, _collect = pl.scan_parquet, pl.LazyFrame.collect


class SimulatedTable:
    """Takes the place of `deltalake.DeltaTable`: a handle of a table at some version."""

    def __init__(self, url: str, version: int | None = None, storage_options: Any = None) -> None:
        self._url, self._version = url, -1
        self._log = SimulatedStorage(f"{url}/_delta_log")
        self._files: dict[str, dict[str, Any]] = {}
        self._writers: dict[str, int] = {}
        self._schema: Schema | None = None
        self._listed: tuple[int, pl.DataFrame] | None = None
        self._load(version)
        if self._schema is None:
            raise TableNotFoundError(f"no table at {url}")
        if version is not None and self._version != version:
            raise DeltaError(f"{url} has no version {version}")
        self.alter = self.optimize = self

    @classmethod
    def create(cls, url: str, *, schema: Schema, **_: Any) -> None:
        """Create a table unless there is one."""
        try:
            _commit_file(SimulatedStorage(f"{url}/_delta_log"), 0, [_metadata(schema)])
        except AlreadyThere:
            return

    def version(self) -> int:
        """Number of the last commit that this handle knows."""
        return self._version

    def transaction_version(self, writer: str) -> int | None:
        """Last number of a writer."""
        return self._writers.get(writer)

    def schema(self) -> Schema:
        """The columns."""
        assert self._schema is not None
        return self._schema

    def update_incremental(self) -> None:
        """Read the commits since."""
        self._load(None)

    def get_add_actions(self, *, flatten: bool) -> pl.DataFrame:
        """The files, as the library lists them."""
        if self._listed is None or self._listed[0] != self._version:
            self._listed = self._version, self._list()
        return self._listed[1]

    def _list(self) -> pl.DataFrame:
        rows = [(path, *_numbers(add)) for path, add in self._files.items()]
        names = ("path", f"partition.{DAY}", "size_bytes", "num_records", "min.time", "max.time")
        times = pl.Datetime("us", "UTC")
        types = (pl.String, pl.Date, pl.Int64, pl.Int64, times, times)
        return pl.DataFrame(rows, schema=dict(zip(names, types, strict=True)), orient="row")

    def create_write_transaction(
        self, files: Sequence[AddAction], mode: str, schema: Schema, *, partition_by: Any, commit_properties: Any
    ) -> None:
        """Add files in one commit. The handle does not know its own commit afterwards, as with the library."""
        self._commit([_add(file) for file in files], commit_properties.app_transactions)

    def add_columns(self, fields: Sequence[Any]) -> None:
        """Widen the table."""
        self._commit([_metadata(Schema([*self.schema().fields, *fields]))], [])
        self._load(None)

    def compact(self, **_: Any) -> None:
        """Merge the files of each day."""
        storage, actions = SimulatedStorage(self._url), []
        for day in sorted({str(add["partitionValues"][DAY]) for add in self._files.values()}):
            old = sorted(path for path, add in self._files.items() if add["partitionValues"][DAY] == day)
            if len(old) > 1:
                frame = pl.concat([_parsed(_data(f"{self._url}/{path}")) for path in old], how="diagonal")
                merged = _write(storage, frame.with_columns(pl.lit(dt.date.fromisoformat(day)).alias(DAY)))
                actions += [{"remove": {"path": path, "dataChange": False}} for path in old]
                actions.append(_add(merged, changes=False))
        if actions:
            self._commit(actions, [])
        self._load(None)

    def create_checkpoint(self) -> None:
        """Nothing to do."""

    def cleanup_metadata(self) -> None:
        """Nothing to do: worlds are shorter than the retention of commits."""

    def _load(self, to: int | None) -> None:
        store = Store.current
        store.call(f"commits {self._url} {self._version}")
        while to is None or self._version < to:
            data = store.files.get(f"{self._log.url}/{_name(self._version + 1)}")
            if data is None:
                break
            self._version += 1
            for action in _actions(data):
                self._apply(action)

    def _apply(self, action: dict[str, Any]) -> None:
        ((kind, value),) = action.items()
        if kind == "add":
            self._files[value["path"]] = value
        elif kind == "remove":
            self._files.pop(value["path"], None)
        elif kind == "txn":
            self._writers[value["appId"]] = value["version"]
        else:
            self._schema = _schema(value["schemaString"])

    def _commit(self, actions: list[dict[str, Any]], transactions: Any) -> None:
        mine = [
            {"txn": {"appId": transaction.app_id, "version": transaction.version}} for transaction in transactions or ()
        ]
        version, changes = self._version + 1, [*mine, *actions]
        while True:
            try:
                _commit_file(self._log, version, changes)
                return
            except AlreadyThere:
                other = Store.current.files[f"{self._log.url}/{_name(version)}"]
                self._check(changes, _actions(other))
                version += 1

    def _check(self, mine: list[dict[str, Any]], others: list[dict[str, Any]]) -> None:
        """`CommitFailedError` if another commit conflicts with this one."""
        writers = {action["txn"]["appId"] for action in mine if "txn" in action}
        removed = {action["remove"]["path"] for action in mine if "remove" in action}
        for action in others:
            ((kind, value),) = action.items()
            conflict = (
                kind == "metaData"
                or (kind == "txn" and value["appId"] in writers)
                or (kind == "remove" and value["path"] in removed)
            )
            if conflict:
                raise CommitFailedError(f"concurrent {kind} at {self._url}")


def scan_parquet(uris: Any, **options: Any) -> pl.LazyFrame:
    """Takes the place of Polars' function for files of the simulated store."""
    if not (isinstance(uris, list) and str(uris[0]).startswith("sim://")):
        return _scan_parquet(uris, **options)
    schema: dict[str, pl.DataType] = options["schema"]
    Store.current.call(f"scan {len(uris)}")
    return _rows(tuple(_data(uri) for uri in uris), tuple(schema.items()))


@lru_cache(300)
def _rows(files: tuple[bytes, ...], schema: tuple[tuple[str, pl.DataType], ...]) -> pl.LazyFrame:
    """Rows of some files; other scans of the same files share them."""
    return pl.concat([_with_columns(_parsed(data), dict(schema)) for data in files]).lazy()


def _with_columns(frame: pl.DataFrame, schema: dict[str, pl.DataType]) -> pl.DataFrame:
    missing = [pl.lit(None, dtype).alias(name) for name, dtype in schema.items() if name not in frame.columns]
    return frame.with_columns(missing).select(*schema)


def collect(frame: pl.LazyFrame, *, engine: str = "auto", **options: Any) -> pl.DataFrame:
    """Takes the place of `polars.LazyFrame.collect`: to start the streaming engine costs more than these few rows."""
    return _collect(frame, engine="in-memory", **options)


def _data(uri: str) -> bytes:
    try:
        return Store.current.files[uri]
    except KeyError:
        raise FileNotFoundError(uri) from None


@lru_cache(1000)
def _parsed(data: bytes) -> pl.DataFrame:
    return pl.read_parquet(io.BytesIO(data))


def _write(storage: SimulatedStorage, part: pl.DataFrame) -> AddAction:
    rows, day, buffer = part.drop(DAY), str(part[DAY][0]), io.BytesIO()
    rows.write_parquet(buffer, compression="uncompressed", statistics=False)
    path = f"{DAY}={day}/part-{uuid.uuid4()}.parquet"
    storage.replace(path, buffer.getvalue())
    first, last = (rows["time"].dt.epoch("us").min(), rows["time"].dt.epoch("us").max())
    stats = {
        "numRecords": len(rows),
        "minValues": {"time": _text(first)},
        "maxValues": {"time": _text(last)},
        "nullCount": {},
    }
    return AddAction(path, len(buffer.getvalue()), {DAY: day}, 0, True, json.dumps(stats))


def _text(microseconds: Any) -> str:
    """A time as the library's statistics have it: rounded down to milliseconds."""
    moment = dt.datetime.fromtimestamp(microseconds // 1000 / 1e3, dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{microseconds // 1000 % 1000:03}Z"


@lru_cache(1000)
def _actions(commit: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in commit.splitlines()]


@lru_cache
def _schema(text: str) -> Schema:
    return Schema.from_json(text)


def _numbers(add: dict[str, Any]) -> tuple[Any, ...]:
    return dt.date.fromisoformat(add["partitionValues"][DAY]), add["size"], *_statistics(add["stats"])


@lru_cache(1000)
def _statistics(text: str) -> tuple[Any, ...]:
    stats = json.loads(text)
    times = (dt.datetime.fromisoformat(stats[name]["time"]) for name in ("minValues", "maxValues"))
    return stats["numRecords"], *times


def _add(file: AddAction, *, changes: bool = True) -> dict[str, Any]:
    return {
        "add": {
            "path": file.path,
            "size": file.size,
            "partitionValues": dict(file.partition_values),
            "modificationTime": file.modification_time,
            "dataChange": changes,
            "stats": file.stats,
        }
    }


def _metadata(schema: Schema) -> dict[str, Any]:
    return {"metaData": {"schemaString": schema.to_json()}}


def _commit_file(log: SimulatedStorage, version: int, actions: Sequence[dict[str, Any]]) -> None:
    log.create(_name(version), b"\n".join(json.dumps(action).encode() for action in actions))


def _name(version: int) -> str:
    return f"{version:020}.json"
