"""Checksums of data files: in the name of every file that Potstill writes, beside the table for other files.

Parquet readers verify nothing: Polars and the Delta library write no page checksums and check none, so that a flipped
bit can change a value in silence. A file's CRC-32 is therefore part of its name, and so of the commit that adds it. The
Delta library names the files of a compaction itself; their checksums, and those of files from before there were any,
are recorded in small files in ``_checksums``, which Delta and its vacuum ignore.
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from potstill.errors import PotstillError
from potstill.storage import Storage, child, open_storage

if TYPE_CHECKING:
    from potstill.events.lake.table import File

FOLDER = "_checksums"
#: Seconds for which a local file that was found intact is not read again by the same process.
TRUSTED_SECONDS = 3600.0
MISSING = "it is missing"
WAY_OUT = "potstill verify DIR lists the damage, and with --repair takes the file out and restores its rows if it can"

_NAMED = re.compile(r"-crc32-([0-9a-f]{8})\.[a-z.]+$")
_CHUNK = 1 << 20
#: Local files found intact: size, time of change and inode, and when they were read.
_intact: dict[str, tuple[tuple[int, int, int], float]] = {}


class CorruptFile(PotstillError, ValueError):
    """A data file of the lake is not what was written."""


class Checksum(msgspec.Struct, frozen=True):
    """Size and CRC-32 of a file."""

    bytes: int
    crc32: int


def checked_name(stem: str, data: bytes, suffix: str) -> str:
    """A file name that holds the checksum of the contents."""
    return f"{stem}-crc32-{zlib.crc32(data):08x}{suffix}"


def crc_in_name(path: str) -> int | None:
    """The checksum in the name of a file; None if it has none."""
    match = _NAMED.search(path)
    return int(match[1], 16) if match else None


class Checksums:
    """Checksums of the data files of one table.

    Args:
        url: Path or address of the table.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._storage: Storage = open_storage(url)
        self._local = "://" not in url
        self._recorded: dict[str, dict[str, Checksum]] = {}

    def of(self, file: File) -> Checksum | None:
        """Checksum of a file as it was written; None if it was never recorded."""
        named = crc_in_name(file.uri)
        if named is not None:
            return Checksum(file.bytes, named)
        path = self._path(file)
        return _lookup(self._recorded, path) or _lookup(self._records(), path)

    def fault(self, file: File) -> str | None:
        """What is wrong with a file; None if it is intact. Of a file without a checksum, only the size is compared."""
        stated = self.of(file)
        try:
            actual = self.measure(file) if stated or not self._local else Checksum(Path(file.uri).stat().st_size, 0)
        except FileNotFoundError:
            return MISSING
        size = file.bytes if stated is None else stated.bytes
        if actual.bytes != size:
            return f"it has {actual.bytes} bytes instead of {size}"
        if stated is not None and actual.crc32 != stated.crc32:
            return f"its CRC-32 is {actual.crc32:08x} instead of {stated.crc32:08x}"
        return None

    def check(self, files: Iterable[File], *, remote: bool = False) -> None:
        """`CorruptFile` for the first damaged one of some files; a process reads a local one once an hour.

        Args:
            files: The files.
            remote: Whether to read files of an object store too, whole and each time.
        """
        if self._local or remote:
            for file in files:
                self._check(file)

    def record(self, files: Iterable[File]) -> int:
        """Record the checksums of the files that have none, as they are now; returns their number."""
        found = {self._path(file): self.measure(file) for file in files if self.of(file) is None}
        if found:
            data = msgspec.json.encode(found)
            self._storage.create(f"{FOLDER}/{checked_name(uuid4().hex, data, '.json')}", data)
        return len(found)

    def prune(self, present: Iterable[File]) -> None:
        """Delete records of which no file is in the table or in storage any more."""
        known = {self._path(file) for file in present}
        for name, paths in list(self._records().items()):
            if known.isdisjoint(paths) and not any(self._exists(path) for path in paths):
                self._storage.delete(f"{FOLDER}/{name}")

    def damage(self) -> list[str]:
        """Records that are damaged, in words; their files count as unchecked."""
        intact = self._records()
        return [
            f"{child(self._url, f'{FOLDER}/{name}')}: the checksums recorded there are damaged; delete it, and "
            "record them again with potstill verify DIR --seal"
            for name in self._storage.names(FOLDER)
            if name not in intact
        ]

    def measure(self, file: File) -> Checksum:
        """Checksum of a file as it is now."""
        if not self._local:
            data = self._storage.read(self._path(file))
            return Checksum(len(data), zlib.crc32(data))
        size = crc = 0
        with Path(file.uri).open("rb", buffering=0) as stream:
            while chunk := stream.read(_CHUNK):
                size, crc = size + len(chunk), zlib.crc32(chunk, crc)
        return Checksum(size, crc)

    def _check(self, file: File) -> None:
        key = self._key(file)
        known, since = _intact.get(file.uri, (None, 0.0))
        if key is not None and known == key and time.monotonic() - since < TRUSTED_SECONDS:
            return
        if fault := self.fault(file):
            if fault == MISSING:
                return  # reading it says so
            raise CorruptFile(f"{file.uri} is damaged: {fault}; {WAY_OUT}")
        if key is not None:
            _intact[file.uri] = key, time.monotonic()

    def _key(self, file: File) -> tuple[int, int, int] | None:
        """What changes when a local file is written; None for other files."""
        try:
            status = Path(file.uri).stat() if self._local else None
        except FileNotFoundError:
            return None
        return None if status is None else (status.st_size, status.st_mtime_ns, status.st_ino)

    def _records(self) -> Mapping[str, dict[str, Checksum]]:
        """Recorded checksums by the name of the record, read once each; damaged records are left out."""
        names = self._storage.names(FOLDER)
        for name in names:
            if name not in self._recorded:
                data = self._storage.read(f"{FOLDER}/{name}")
                if zlib.crc32(data) == crc_in_name(name):
                    self._recorded[name] = msgspec.json.decode(data, type=dict[str, Checksum])
        self._recorded = {name: self._recorded[name] for name in names if name in self._recorded}
        return self._recorded

    def _exists(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        return name in self._storage.names(folder)

    def _path(self, file: File) -> str:
        return file.uri.removeprefix(f"{self._url.rstrip('/')}/")


def _lookup(records: Mapping[str, Mapping[str, Checksum]], path: str) -> Checksum | None:
    return next((paths[path] for paths in records.values() if path in paths), None)
