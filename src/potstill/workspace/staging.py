"""A new workspace that takes minutes to make is there whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from potstill.files import hold, make_folder, sync_folder
from potstill.storage import LocalStorage, open_storage
from potstill.workspace.problem_source import PROBLEM
from potstill.workspace.workspace import CONFIG, WorkspaceExists

#: Within the folder of the new workspace: what is being made, what is made and not in its place yet, and the lock.
_STAGING, _MADE, _LOCK = ".potstill-init", ".potstill-made", ".potstill-init.lock"


@contextlib.contextmanager
def staging(place: str) -> Iterator[str]:
    """Give a place to make a new workspace in, and move it to its own place at the end.

    If what is done there raises, or the process is killed, nothing is left but a hidden folder, which the next one
    removes; a workspace that was made, and not in its place when the process was killed, is put there. A workspace in
    an object store is made in its place.

    Args:
        place: The new workspace.

    Raises:
        WorkspaceExists: There is one, another process makes one, or there are files with the names of its own.
    """
    storage = open_storage(place)
    if not isinstance(storage, LocalStorage):
        yield place
        return
    folder, was_there = storage.folder, storage.folder.exists()
    make_folder(folder)
    with _locked(folder), _emptied(folder, keep=was_there):
        _recover(folder)
        if (folder / PROBLEM).exists():
            raise WorkspaceExists(f"{place} is a workspace already: it has a {PROBLEM}")
        staged = folder / _STAGING
        shutil.rmtree(staged, ignore_errors=True)
        make_folder(staged)
        if (folder / CONFIG).exists():
            shutil.copy(folder / CONFIG, staged)
        yield str(staged)
        if taken := [
            entry.name for entry in staged.iterdir() if entry.name != CONFIG and (folder / entry.name).exists()
        ]:
            raise WorkspaceExists(f"{place} has {taken[0]!r}, which a workspace has too; name an empty folder")
        staged.rename(folder / _MADE)
        _recover(folder)


def recover(place: str) -> None:
    """Put a workspace in its place that was made there by `staging`, in a process that was killed just then."""
    storage = open_storage(place)
    if isinstance(storage, LocalStorage) and (storage.folder / _MADE).exists():
        with _locked(storage.folder):
            _recover(storage.folder)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    held = hold(folder / _LOCK, wait=False)
    if held is None:
        raise WorkspaceExists(f"{folder}: another process makes a workspace here; wait for it, or name another folder")
    try:
        yield
    finally:
        (folder / _LOCK).unlink(missing_ok=True)
        os.close(held)


@contextlib.contextmanager
def _emptied(folder: Path, *, keep: bool) -> Iterator[None]:
    """Remove what an error leaves: what was made, and the folder if it was not there before and has nothing else."""
    try:
        yield
    except BaseException:
        shutil.rmtree(folder / _STAGING, ignore_errors=True)
        if not keep and [entry.name for entry in folder.iterdir()] == [_LOCK]:
            (folder / _LOCK).unlink()
            folder.rmdir()
        raise


def _recover(folder: Path) -> None:
    """Move a workspace that is made to its place; its problem, by which it is one, last."""
    made = folder / _MADE
    if not made.exists():
        return
    for entry in sorted(made.iterdir(), key=lambda entry: entry.name == PROBLEM):
        entry.replace(folder / entry.name)
    sync_folder(folder)
    made.rmdir()
