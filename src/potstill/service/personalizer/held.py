"""Decisions that are not activated yet, held on this machine's disk.

A decision of `deferActivation` must not be learnt from until it is activated, and the event log is append-only: so it
is held here, and logged when it is activated. SQLite makes that durable before the reply, and shares it among workers.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from potstill.clock import now

#: How long a decision is held, in microseconds: a week.
KEPT = 7 * 86_400 * 1_000_000
#: Decisions between two removals of old ones.
_SWEEP = 1_000
#: Seconds to wait for another worker that writes.
_WAIT = 1.0
_TABLE = """
CREATE TABLE IF NOT EXISTS held (
    id TEXT PRIMARY KEY, made INTEGER NOT NULL, request BLOB NOT NULL, decision BLOB NOT NULL,
    activated INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID
"""


class Held(NamedTuple):
    """A decision that is held.

    Attributes:
        request: Digest of the request.
        decision: The decision, encoded.
        activated: Whether it has been activated and logged.
    """

    request: bytes
    decision: bytes
    activated: bool


class HeldDecisions:
    """The decisions that are held in one file. Its methods wait for the disk: run them in a thread.

    Args:
        path: The file; it is created when the first decision is held.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._since_sweep = path, _SWEEP

    def hold(self, name: str, request: bytes, decision: bytes) -> Held:
        """Hold a decision, and return what is held under its id: an earlier decision, if there is one."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with closing(self._connect()) as database, database:
            database.execute(_TABLE)
            self._sweep(database)
            stated = (name, now(), request, decision)
            database.execute(
                "INSERT INTO held (id, made, request, decision) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING", stated
            )
            found = _find(database, name)
        assert found is not None
        return found

    def find(self, name: str) -> Held | None:
        """The decision that is held under an id."""
        if not self._path.exists():
            return None
        with closing(self._connect()) as database:
            return _find(database, name)

    def mark(self, name: str) -> None:
        """Note that a decision is logged."""
        with closing(self._connect()) as database, database:
            database.execute("UPDATE held SET activated = 1 WHERE id = ?", (name,))

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, timeout=_WAIT)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        return database

    def _sweep(self, database: sqlite3.Connection) -> None:
        self._since_sweep += 1
        if self._since_sweep > _SWEEP:
            self._since_sweep = 0
            database.execute("DELETE FROM held WHERE made < ?", (now() - KEPT,))


def _find(database: sqlite3.Connection, name: str) -> Held | None:
    row = database.execute("SELECT request, decision, activated FROM held WHERE id = ?", (name,)).fetchone()
    return None if row is None else Held(row[0], row[1], bool(row[2]))
