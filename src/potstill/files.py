"""Atomic and durable writes, private by default, and file locks."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from potstill.errors import PotstillError

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows, where policies load, decide and are saved, and nothing is locked
    fcntl = None

#: Permissions of new files. Events hold personal data, so files are for their owner alone unless asked otherwise;
#: shared ones, such as reports, go by the umask.
PRIVATE, SHARED = 0o600, 0o666
PRIVATE_FOLDER = 0o700
#: Seconds after its last change at which a temporary file counts as left by a killed writer.
STALE = 24 * 3600.0
#: New folders that a power cut would remove with all that is in them: syncing their parent failed, or is under way.
_unsynced: set[Path] = set()
#: Flags of opened files: not inherited by other programs, and bytes as they are, where the system makes a difference.
OPEN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]+\.tmp")


class UnsupportedPlatform(PotstillError, RuntimeError):
    """The operating system lacks what is needed; the message says what, and where to run it."""


def write_atomically(path: str | Path, data: bytes, mode: int = PRIVATE) -> None:
    """Write a file atomically and durably: readers see the old or the new contents, also after a crash.

    Threads, processes and containers may write the same file at once; one of them is last.
    """
    with _temporary(Path(path), data, mode) as temporary:
        temporary.replace(path)
        sync_folder(temporary.parent)


def create_atomically(path: str | Path, data: bytes, mode: int = PRIVATE) -> None:
    """Like `write_atomically`, but `FileExistsError`, and no change, if the file exists."""
    with _temporary(Path(path), data, mode) as temporary:
        os.link(temporary, path)
        sync_folder(temporary.parent)


@contextlib.contextmanager
def _temporary(path: Path, data: bytes, mode: int) -> Iterator[Path]:
    """A synced file beside `path` with a name that no other writer has; removed afterwards."""
    # Not the process id: threads share it, and so do containers that share a folder.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | OPEN, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def remove_stale(folder: str | Path) -> None:
    """Remove the temporary files that killed writers left in a folder; those younger than `STALE` stay."""
    oldest = time.time() - STALE
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):  # its writer has just removed it
                if _TEMPORARY.fullmatch(entry.name) and entry.stat(follow_symlinks=False).st_mtime < oldest:
                    Path(entry).unlink(missing_ok=True)


def sync_folder(folder: str | Path) -> None:
    """Sync the entries of a folder to disk; Windows has no such call."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents durably, for their owner alone; existing ones keep their permissions."""
    if not folder.is_dir() or folder in _unsynced:
        make_folder(folder.parent)
        _unsynced.add(folder)
        folder.mkdir(PRIVATE_FOLDER, exist_ok=True)
        sync_folder(folder.parent)
        _unsynced.discard(folder)


def lock(descriptor: int, *, wait: bool) -> None:
    """Lock an open file for this process alone; `BlockingIOError` if another holds it and `wait` is false."""
    if fcntl is None:
        raise UnsupportedPlatform(
            "event logs, workspaces and edge clients need POSIX file locks, which this system lacks; run them on Linux "
            "or macOS, in a container or under WSL. Policies load and decide here"
        )
    fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)


def unlock(descriptor: int) -> None:
    """Release the lock of an open file."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def hold(path: Path, *, wait: bool) -> int | None:
    """Lock a file, created if missing. Returns its descriptor, or None if it is locked and `wait` is false.

    Close the descriptor to unlock. Raises `FileNotFoundError` if the folder is missing.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | OPEN, PRIVATE)
        try:
            lock(descriptor, wait=wait)
            if _is(path, descriptor):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        # The previous holder removed the file, so later processes lock a new one.
        os.close(descriptor)


def _is(path: Path, descriptor: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    return False
