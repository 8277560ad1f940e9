"""An SQLite file that is sound when it is opened: one that is corrupt is moved aside, and a fresh one begun."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

log = logging.getLogger("potstill.client")


def open_file(path: Path, tables: str, synchronous: str) -> tuple[sqlite3.Connection, Path | None]:
    """A connection for all threads, with write-ahead log; and where a corrupt file was moved, if there was one."""
    try:
        return _open(path, tables, synchronous), None
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):  # locked, no permission, disk full: the file may be sound
            raise
        aside = _move_aside(path)
        log.error("%s is corrupt (%s); it was moved to %s, and a fresh one begun", path, error, aside.name)
        return _open(path, tables, synchronous), aside


def _open(path: Path, tables: str, synchronous: str) -> sqlite3.Connection:
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(f"PRAGMA synchronous = {synchronous}")
        found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        database.executescript(tables)
    except BaseException:
        database.close()
        raise
    return database


def _move_aside(path: Path) -> Path:
    """Rename a file, and what SQLite keeps beside it, so that they still belong together."""
    number = 1
    while (aside := path.with_name(f"{path.name}.corrupt-{number}")).exists():
        number += 1
    for suffix in ("-wal", "-shm", ""):
        if (part := path.with_name(path.name + suffix)).exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside
