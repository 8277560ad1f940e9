"""The folder of one writer: it belongs to whoever holds its lock, a living log or an adopter."""

from __future__ import annotations

import contextlib
from pathlib import Path

from potstill.events.wal.locks import hold
from potstill.files import make_folder

LOCK = "lock"


def take_folder(folder: Path) -> int:
    """Make a writer's folder and lock it; the lock's descriptor."""
    while True:
        make_folder(folder)
        # An adopter that finds the new folder before it is locked removes it.
        with contextlib.suppress(FileNotFoundError):
            descriptor = hold(folder / LOCK, wait=True)
            assert descriptor is not None
            return descriptor


def adopt_folder(folder: Path) -> int | None:
    """Lock the folder of a writer that is no more; None if it lives, or the folder is gone or in other hands."""
    try:
        return hold(folder / LOCK, wait=False)
    except FileNotFoundError:
        return None


def remove_if_empty(folder: Path) -> None:
    """Remove a folder in which only the lock is left; for the holder of the lock. What fails is left for later."""
    with contextlib.suppress(OSError):
        if all(path.name == LOCK for path in folder.iterdir()):
            (folder / LOCK).unlink()
            folder.rmdir()
