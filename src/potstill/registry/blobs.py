"""Content-addressed files of versions: written once, verified on every read."""

from __future__ import annotations

import hashlib

from potstill.registry.entries import WAY_OUT, File
from potstill.registry.errors import CorruptVersion
from potstill.storage import AlreadyThere, Storage, child, holds


def write_blob(storage: Storage, version: int, kind: str, data: bytes) -> File:
    """Write a file of a version before it is published; an existing file with equal bytes stays."""
    sha256 = hashlib.sha256(data).hexdigest()
    file = File(f"{_folder(version)}/{sha256[:16]}.{kind}", sha256, len(data))
    try:
        storage.create(file.name, data)
    except AlreadyThere:
        # Left by a publication that did not reach its entry. The name is the hash of the contents.
        if not holds(storage, file.name, data):
            storage.replace(file.name, data)
    return file


def read_blob(storage: Storage, file: File) -> bytes:
    """Bytes of a file; `CorruptVersion` if they are not those that were written."""
    where = child(storage.url, file.name)
    try:
        data = storage.read(file.name)
    except FileNotFoundError:
        raise CorruptVersion(f"{where} is missing; {WAY_OUT}") from None
    if len(data) != file.bytes:
        raise CorruptVersion(f"{where}: truncated or altered: {len(data)} bytes instead of {file.bytes}; {WAY_OUT}")
    actual = hashlib.sha256(data).hexdigest()
    if actual != file.sha256:
        raise CorruptVersion(f"{where}: altered: its SHA-256 is {actual} instead of {file.sha256}; {WAY_OUT}")
    return data


def states(storage: Storage, version: int) -> list[str]:
    """Names of the stored teacher states of a version."""
    folder = _folder(version)
    return [f"{folder}/{name}" for name in storage.names(folder) if name.endswith(".teacher")]


def _folder(version: int) -> str:
    return f"versions/{version}"
