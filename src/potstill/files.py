"""Files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


def write_atomically(path: str | Path, data: bytes) -> None:
    """Write a file so that a reader, or a machine that loses power, sees the old one or the new one, never a part."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def sync_folder(folder: str | Path) -> None:
    """Make new names in a folder survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder, and those that it is in, so that they survive a loss of power."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def hold(path: Path, *, wait: bool) -> int | None:
    """Lock a file, which is made if it is not there: its descriptor, or None if another holds it and `wait` is false.

    Close the descriptor to let go. A `FileNotFoundError` means that the folder is not there.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is(path, descriptor):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        # The holder before has removed the file: the lock on it means nothing to those who come later.
        os.close(descriptor)


def _is(path: Path, descriptor: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    return False
