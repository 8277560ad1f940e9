"""The files of a version: named by what they hold, written once, verified whenever they are read."""

from __future__ import annotations

import hashlib

from potstill.registry.entries import WAY_OUT, File
from potstill.registry.errors import CorruptVersion
from potstill.storage import AlreadyThere, Storage, child, holds


def keep(storage: Storage, version: int, kind: str, data: bytes) -> File:
    """Write a file of a version that is about to be published. Equal bytes that are there already are left."""
    sha256 = hashlib.sha256(data).hexdigest()
    file = File(f"{_folder(version)}/{sha256[:16]}.{kind}", sha256, len(data))
    try:
        storage.create(file.name, data)
    except AlreadyThere:
        # Left by one that did not get as far as its entry. The name says what it must hold.
        if not holds(storage, file.name, data):
            storage.replace(file.name, data)
    return file


def read_kept(storage: Storage, file: File) -> bytes:
    """The bytes of a file, if they are the ones that were written."""
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
    """The names of the teacher's states that are there for a version."""
    folder = _folder(version)
    return [f"{folder}/{name}" for name in storage.names(folder) if name.endswith(".teacher")]


def _folder(version: int) -> str:
    return f"versions/{version}"
