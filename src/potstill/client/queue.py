"""The queue of a device: decisions and rewards in an SQLite file until the service has acknowledged them."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Literal

import msgspec

from potstill.client.device_clock import Uptime
from potstill.client.errors import QueueFull
from potstill.files import PRIVATE

log = logging.getLogger("potstill.client")
Kind = Literal["decision", "reward"]
Survives = Literal["power", "process"]
_SYNCHRONOUS = {"power": "FULL", "process": "NORMAL"}
_TABLES = """
CREATE TABLE IF NOT EXISTS queue
    (number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL,
     boot TEXT, uptime INTEGER);
CREATE UNIQUE INDEX IF NOT EXISTS decided ON queue (id) WHERE kind = 'decision';
CREATE TABLE IF NOT EXISTS refused
    (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL, reason TEXT NOT NULL);
"""


def open_file(path: Path, tables: str, synchronous: str) -> tuple[sqlite3.Connection, Path | None]:
    """A connection for all threads, in WAL mode; and where a corrupt file was moved, if there was one."""
    try:
        return _open(path, tables, synchronous), None
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):  # locked, no permission, disk full: the file may be intact
            raise
        aside = _move_aside(path)
        log.error("%s is corrupt (%s); it was moved to %s, and a new one created", path, error, aside.name)
        return _open(path, tables, synchronous), aside


def _open(path: Path, tables: str, synchronous: str) -> sqlite3.Connection:
    _create_private(path)
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


def _create_private(path: Path) -> None:
    """Create a missing file: SQLite would go by the umask. Its files beside this one have the same permissions."""
    with suppress(OSError):  # it exists, or SQLite says why it cannot be created
        # Exclusively: closing a descriptor of a database that is in use would drop SQLite's locks.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))


def _move_aside(path: Path) -> Path:
    """Rename a file together with SQLite's files beside it."""
    number = 1
    while (aside := path.with_name(f"{path.name}.corrupt-{number}")).exists():
        number += 1
    for suffix in ("-wal", "-shm", ""):
        if (part := path.with_name(path.name + suffix)).exists():
            part.rename(aside.with_name(aside.name + suffix))
    return aside


class Row(msgspec.Struct):
    """A row of the queue.

    Attributes:
        kind: Kind of the row.
        id: Id of the decision.
        body: JSON, as it is sent.
        taken: Time since boot when it was written; None if its time was stated by the caller.
        number: Position in the queue; None before it is written.
        earlier: Body of an earlier decision with this id, which stays in place of this one.
    """

    kind: Kind
    id: str
    body: bytes
    taken: Uptime | None = None
    number: int | None = None
    earlier: bytes | None = None


class RefusedRow(msgspec.Struct, frozen=True):
    """A row that the service refused, and why."""

    kind: Kind
    id: str
    body: bytes
    reason: str


class _Group:
    """Rows that are written in one transaction, by the first of their threads (group commit)."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.written = False
        self.error: Exception | None = None


class Queue:
    """Rows in order of arrival; for the threads of one process.

    A corrupt file is moved aside, and a new one created.

    Args:
        path: The SQLite file.
        limit: The most rows, refused ones included.
        survives: What a row survives once `append` has returned: a ``"power"`` loss (each group of rows is synced to
            disk), or the end of the ``"process"`` (it is in the page cache, a thousand times faster).
    """

    def __init__(self, path: Path, *, limit: int, survives: Survives = "power") -> None:
        if survives not in _SYNCHRONOUS:
            raise ValueError(f'survives must be "power" or "process", got {survives!r}')
        self._limit = limit
        self._open_group = _Group()
        self._group_lock = threading.Lock()
        self._use = threading.Lock()
        self._database, self.moved_aside = open_file(path, _TABLES, _SYNCHRONOUS[survives])
        self._widen()
        self._count = self._counted("queue")
        self._refused = self._counted("refused")

    def __len__(self) -> int:
        return self._count

    @property
    def refused_count(self) -> int:
        """Number of refused rows."""
        return self._refused

    def append(self, row: Row) -> Row:
        """Write a row durably; concurrent threads share the next transaction.

        Raises:
            QueueFull: The queue or the disk is full; nothing was written.
        """
        with self._group_lock:
            group = self._open_group
            group.rows.append(row)
        with self._use:
            if not group.written:
                with self._group_lock:
                    self._open_group = _Group()
                self._write(group)
        if group.error is not None:
            raise group.error
        return row

    def newest(self) -> int:
        """Number of the last row; 0 if there is none."""
        with self._use:
            return int(self._database.execute("SELECT coalesce(max(number), 0) FROM queue").fetchone()[0])

    def oldest(self, kind: Kind, rows: int, size: int, until: int, after: int = 0) -> list[Row]:
        """The first rows of a kind: up to `rows`, and up to `size` bytes but at least one row.

        Args:
            kind: Kind of the rows.
            rows: The most rows.
            size: The most bytes.
            until: Number of the last row that may be among them.
            after: Number after which to begin; rows before it are not looked at.
        """
        query = (
            "SELECT id, body, boot, uptime, number FROM queue WHERE number > ? AND number <= ? AND kind = ? "
            "ORDER BY number LIMIT ?"
        )
        with self._use:
            found = self._database.execute(query, (after, until, kind, rows)).fetchall()
        first: list[Row] = []
        for decision_id, body, boot, uptime, number in found:
            size -= len(body)
            if size < 0 and first:
                break
            first.append(Row(kind, decision_id, body, None if boot is None else Uptime(boot, uptime), number))
        return first

    def remove(self, rows: Sequence[Row]) -> None:
        """Delete rows that the service has acknowledged."""
        with self._transaction():
            self._database.executemany("DELETE FROM queue WHERE number = ?", [(row.number,) for row in rows])
            self._count -= len(rows)

    def set_aside(self, row: Row, reason: str) -> None:
        """Move a refused row out of the queue."""
        with self._transaction():
            self._database.execute(
                "INSERT INTO refused (kind, id, body, reason) VALUES (?, ?, ?, ?)", (row.kind, row.id, row.body, reason)
            )
            self._database.execute("DELETE FROM queue WHERE number = ?", (row.number,))
            self._count -= 1
            self._refused += 1

    def refused(self) -> list[RefusedRow]:
        """The refused rows."""
        with self._use:
            found = self._database.execute("SELECT kind, id, body, reason FROM refused ORDER BY number").fetchall()
        return [RefusedRow(*values) for values in found]

    def requeue_refused(self) -> None:
        """Put refused rows back into the queue, once the cause is fixed."""
        with self._transaction():
            self._database.execute(
                "INSERT OR IGNORE INTO queue (kind, id, body) SELECT kind, id, body FROM refused ORDER BY number"
            )
            self._database.execute("DELETE FROM refused")
            self._count, self._refused = self._counted("queue"), 0

    def discard_refused(self) -> None:
        """Delete refused rows."""
        with self._transaction():
            self._database.execute("DELETE FROM refused")
            self._refused = 0

    def close(self) -> None:
        """Close the file."""
        with self._use:
            self._database.close()

    def _write(self, group: _Group) -> None:
        group.written = True
        try:
            self._check_room(len(group.rows))
            # A single row is a transaction by itself: one statement rather than three.
            with self._begun() if len(group.rows) > 1 else nullcontext():
                written = sum(map(self._insert, group.rows))
            self._count += written
        except sqlite3.OperationalError as error:
            group.error = QueueFull(f"the queue cannot be written, nothing was added: {error}. Is the disk full?")
        except (sqlite3.Error, QueueFull) as error:
            group.error = error
        except BaseException:  # Ctrl-C in one thread: the others must not assume that their rows are written
            group.error = RuntimeError("the queue was interrupted; the row may or may not be written")
            raise

    def _check_room(self, rows: int) -> None:
        if self._count + self._refused + rows > self._limit:
            raise QueueFull(
                f"the queue has {self._count} rows to send and {self._refused} that were refused, of {self._limit} "
                "allowed; nothing was added. Call sync() where there is a network, discard_refused(), or raise "
                "max_rows; policy.decide() decides without a log"
            )

    def _insert(self, row: Row) -> bool:
        cursor = self._database.execute(
            "INSERT OR IGNORE INTO queue (kind, id, body, boot, uptime) VALUES (?, ?, ?, ?, ?)",
            (row.kind, row.id, row.body, *(row.taken or (None, None))),
        )
        if cursor.rowcount:
            return True
        query = "SELECT body FROM queue WHERE id = ? AND kind = 'decision'"
        row.earlier = self._database.execute(query, (row.id,)).fetchone()[0]
        return False

    def _widen(self) -> None:
        """Add the columns that a file of an earlier version lacks."""
        present = {name for _, name, *_ in self._database.execute("PRAGMA table_info(queue)")}
        for name, kind in (("boot", "TEXT"), ("uptime", "INTEGER")):
            if name not in present:
                self._database.execute(f"ALTER TABLE queue ADD COLUMN {name} {kind}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._use, self._begun():
            yield

    @contextmanager
    def _begun(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    def _counted(self, table: str) -> int:
        return int(self._database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
