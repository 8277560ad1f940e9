"""Backups of a workspace: consistent while everything runs, verified, and incremental.

Everything in a workspace is appended: a version names cuts, a cut names versions of the tables, and none of them
changes afterwards. So the registry is read first, then the cuts, then the tables: whatever an earlier one names is in
the later ones. A backup is one manifest, written last, over files that are stored once by their SHA-256.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from potstill.clock import now
from potstill.errors import PotstillError
from potstill.storage import AlreadyThere, Storage, open_storage
from potstill.workspace.problem_source import PROBLEM
from potstill.workspace.teacher_code import model_files
from potstill.workspace.workspace import Workspace, WorkspaceExists

if TYPE_CHECKING:
    from potstill.events.lake import Table

MANIFESTS = "backups"
FORMAT = 1
#: Files that are copied concurrently: an object store has high latency and high throughput.
COPIES = 8
_COMMIT = re.compile(r"(\d{20})\..+")


class NoBackup(PotstillError, LookupError):
    """There is no backup at this place, or none from before the time that was asked for."""


class CorruptBackup(PotstillError, ValueError):
    """A file of a backup is not what was written; nothing more is restored."""


class Stored(msgspec.Struct, frozen=True):
    """A file of a backup: its SHA-256 and size."""

    sha256: str
    bytes: int


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A machine's log whose latest events are not in the backup: those acknowledged since `since`."""

    log: str
    host: str
    since: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds. Times are microseconds since 1970, UTC.

    Attributes:
        format: Version of the format.
        time: When the backup was made.
        workspace: Path or address of the workspace.
        problem: Name of its problem.
        entry: Number of the registry's last entry; 0 if there is none.
        tables: Version of each table of the lake; tables that did not exist are left out.
        waiting: Logs whose latest events are not in it.
        files: Its files by their path in the workspace.
    """

    format: int = FORMAT
    time: int
    workspace: str
    problem: str
    entry: int
    tables: dict[str, int]
    waiting: list[Waiting]
    files: dict[str, Stored]

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(file.bytes for file in self.files.values())


class BackupReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a backup: its manifest without the files, and how much was copied."""

    time: int
    name: str
    entry: int
    tables: dict[str, int]
    waiting: list[Waiting]
    files: int
    bytes: int
    new_files: int
    new_bytes: int


class _Sealed(msgspec.Struct):
    sha256: str
    manifest: msgspec.Raw


def back_up(workspace: Workspace, target: str | Path) -> BackupReport:
    """Back up a workspace: flush this machine's log, copy what is new, read it back, and write the manifest.

    Args:
        workspace: The workspace; services and updates may run.
        target: A folder or an address; it may hold earlier backups, whose files are not copied again.
    """
    store = open_storage(target)
    workspace.flusher().flush()
    moment = now()
    before = next(reversed(_manifests(store)), None)
    copy = _Copy(workspace.storage, store, before.files if before else {})
    tables: dict[str, int] = {}
    entry = copy.registry(workspace)
    copy.table(workspace, "observations", tables)
    copy.folder("events/cuts")
    copy.table(workspace, "rewards", tables)
    copy.table(workspace, "decisions", tables)
    copy.folder("")
    copy.paths(model_files(workspace.config), missing_ok=True)
    manifest = Manifest(
        time=moment,
        workspace=workspace.url,
        problem=workspace.problem.name,
        entry=entry,
        tables=tables,
        waiting=[
            Waiting(log=mark.log, host=mark.host, since=mark.time)
            for mark in workspace.watermarks.all()
            if mark.open and mark.gone is None
        ],
        files=copy.files,
    )
    name = f"{_stamp(moment)}.json"
    store.create(f"{MANIFESTS}/{name}", _seal(manifest))
    return BackupReport(
        time=moment,
        name=name,
        entry=entry,
        tables=tables,
        waiting=manifest.waiting,
        files=len(manifest.files),
        bytes=manifest.bytes,
        new_files=copy.new_files,
        new_bytes=copy.new_bytes,
    )


def list_backups(source: str | Path) -> list[Manifest]:
    """The backups at a place, oldest first."""
    return _manifests(open_storage(source))


def restore(source: str | Path, place: str | Path, at: int | None = None) -> Manifest:
    """Restore a backup into an empty place; every file is verified.

    Args:
        source: Folder or address of the backups.
        place: Folder or address of the new workspace.
        at: The newest backup that is not after this time, in microseconds since 1970; the newest if left out.

    Raises:
        NoBackup: There is none.
        WorkspaceExists: The place is not empty.
        CorruptBackup: A file is damaged; the place is not a workspace.
    """
    store, target = open_storage(source), open_storage(place)
    found = [manifest for manifest in _manifests(store) if at is None or manifest.time <= at]
    if not found:
        before = "" if at is None else f" from before {_stamp(at)}"
        raise NoBackup(f"{store.url} has no backup{before}; potstill restore {store.url} --list shows what it has")
    if target.names("") or target.names("registry/entries"):
        raise WorkspaceExists(f"{target.url} is not empty; restore into a new place")
    manifest = found[-1]
    # The problem comes last: it makes the place a workspace.
    paths = sorted(manifest.files, key=lambda path: path == PROBLEM)
    _each(lambda path: target.replace(path, _read(store, manifest.files[path])), paths[:-1])
    target.replace(PROBLEM, _read(store, manifest.files[PROBLEM]))
    return manifest


class _Copy:
    """Copies files of a workspace into a store, each content once."""

    def __init__(self, source: Storage, store: Storage, known: dict[str, Stored]) -> None:
        self._source, self._store, self._known = source, store, known
        self.files: dict[str, Stored] = {}
        self.new_files = self.new_bytes = 0

    def registry(self, workspace: Workspace) -> int:
        """Copy the registry up to its present last entry; returns the entry's number."""
        head = workspace.registry.head()
        if head is None:
            return 0
        self.paths(["registry/head.json"], missing_ok=True)  # before the entries: it may lag behind them, never lead
        self.folder("registry/entries")
        for version in range(head.latest + 1):
            self.folder(f"registry/versions/{version}", final=True)
        return head.number

    def table(self, workspace: Workspace, table: Table, versions: dict[str, int]) -> None:
        """Copy a table as it is now: its log, and the files that it refers to."""
        version = workspace.lake.version(table)
        if version is None:
            return
        versions[table] = version
        root, log = f"events/{table}", f"events/{table}/_delta_log"
        names = [
            name for name in self._source.names(log) if (match := _COMMIT.match(name)) and int(match[1]) <= version
        ]
        self.paths([f"{log}/{name}" for name in names], final=True)
        url = workspace.lake.url(table)
        data = [f"{root}/{file.uri.removeprefix(url).lstrip('/')}" for file in workspace.lake.files(table, version)]
        self.paths(data, final=True)
        self.folder(f"{root}/_checksums", final=True)

    def folder(self, folder: str, *, final: bool = False) -> None:
        """Copy the files directly in a folder."""
        names = self._source.names(folder)
        self.paths([f"{folder}/{name}" if folder else name for name in names], final=final, missing_ok=True)

    def paths(self, paths: list[str], *, final: bool = False, missing_ok: bool = False) -> None:
        """Copy files by their paths.

        Args:
            paths: The paths.
            final: Whether such a file never changes, so that one of an earlier backup need not be read again.
            missing_ok: Whether a file may have been deleted meanwhile.
        """

        def copy(path: str) -> None:
            if final and (known := self._known.get(path)):
                self.files[path] = known
                return
            with suppress(*((FileNotFoundError,) if missing_ok else ())):
                self._add(path, self._source.read(path))

        _each(copy, paths)

    def _add(self, path: str, data: bytes) -> None:
        stored = Stored(hashlib.sha256(data).hexdigest(), len(data))
        self.files[path] = stored
        try:
            self._store.create(_place(stored), data)
        except AlreadyThere:
            with suppress(CorruptBackup):
                _read(self._store, stored)
                return
            self._store.replace(_place(stored), data)
        _read(self._store, stored)
        self.new_files, self.new_bytes = self.new_files + 1, self.new_bytes + len(data)


def _each(act: Callable[[str], None], paths: list[str]) -> None:
    with ThreadPoolExecutor(COPIES) as pool:
        for _ in pool.map(act, paths):
            pass


def _manifests(store: Storage) -> list[Manifest]:
    return list(_read_manifests(store))


def _read_manifests(store: Storage) -> Iterator[Manifest]:
    for name in store.names(MANIFESTS):
        data = store.read(f"{MANIFESTS}/{name}")
        try:
            sealed = msgspec.json.decode(data, type=_Sealed)
            manifest = msgspec.json.decode(sealed.manifest, type=Manifest)
        except msgspec.DecodeError as error:
            raise CorruptBackup(f"{store.url}/{MANIFESTS}/{name} is not a manifest: {error}; delete it") from error
        if hashlib.sha256(sealed.manifest).hexdigest() != sealed.sha256:
            raise CorruptBackup(f"{store.url}/{MANIFESTS}/{name} was altered; delete it")
        yield manifest


def _read(store: Storage, stored: Stored) -> bytes:
    """A file of a backup, verified."""
    name = _place(stored)
    try:
        data = store.read(name)
    except FileNotFoundError:
        raise CorruptBackup(f"{store.url}/{name} is missing; restore from another backup") from None
    if hashlib.sha256(data).hexdigest() != stored.sha256:
        raise CorruptBackup(f"{store.url}/{name} is damaged: its SHA-256 differs; restore from another backup")
    return data


def _seal(manifest: Manifest) -> bytes:
    data = msgspec.json.encode(manifest)
    return msgspec.json.encode(_Sealed(hashlib.sha256(data).hexdigest(), msgspec.Raw(data)))


def _place(stored: Stored) -> str:
    return f"data/{stored.sha256[:2]}/{stored.sha256}"


def _stamp(moment: int) -> str:
    """A time as the name of a manifest; names sort by time."""
    return datetime.fromtimestamp(moment / 1e6, UTC).strftime("%Y-%m-%dT%H-%M-%S.%fZ")
