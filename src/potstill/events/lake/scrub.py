"""Background scrub: read the lake's files one after the other and compare them with their checksums.

Damage is found while the log or a backup may still have the rows. Only local lakes are scrubbed: an object store
verifies what it stores, and reading all of it again costs requests and traffic; `potstill verify` does it on demand.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from potstill.clock import now
from potstill.events.damage import ScrubState, read_scrub, write_scrub
from potstill.events.lake.lake import Lake
from potstill.events.lake.schema import TABLES, Table
from potstill.events.lake.table import File

#: Seconds between two files, at least.
PAUSE = 2.0
#: Bytes that are read in a second, on average.
RATE = 8 * 1024 * 1024
#: Seconds from the start of one pass to the start of the next, at least.
PERIOD = 24 * 3600.0


class Scrubber:
    """Scrubs one lake, a file at a time; for one thread.

    Args:
        lake: The tables.
        spool: Folder of this machine's log, where the state is recorded.
    """

    def __init__(self, lake: Lake, spool: Path) -> None:
        self._lake, self._spool = lake, spool
        self._files: list[tuple[Table, File]] = []
        self._due = self._next_pass = time.monotonic()
        self._state = msgspec.structs.replace(read_scrub(spool), files=0, left=0)

    def step(self) -> list[str]:
        """Check the next file if it is due; returns new damage, in words."""
        moment = time.monotonic()
        if moment < self._due or "://" in self._lake.root:
            return []
        if not self._files:
            if moment < self._next_pass:
                return []
            self._begin(moment)
        return self._check_next(moment) if self._files else []

    def _begin(self, moment: float) -> None:
        self._files = [(table, file) for table in TABLES for file in self._lake.files(table)]
        self._next_pass = moment + PERIOD
        self._due = moment + PAUSE
        self._state = msgspec.structs.replace(self._state, files=0, left=len(self._files))

    def _check_next(self, moment: float) -> list[str]:
        table, file = self._files.pop()
        known = self._current_damage()
        what = self._lake.tables[table].checksums.fault(file)
        gone = what is not None and file.uri not in {one.uri for one in self._lake.files(table)}
        damaged = {uri: words for uri, words in known.items() if uri != file.uri}
        if what is not None and not gone:
            damaged[file.uri] = what
        self._due = moment + max(PAUSE, file.bytes / RATE)
        self._record(damaged)
        return self._state.notices if damaged.keys() - known.keys() else []

    def _current_damage(self) -> dict[str, str]:
        """Known damage of files that are still in a table."""
        if not self._state.damaged:
            return {}
        present = {file.uri for table in TABLES for file in self._lake.files(table)}
        return {uri: what for uri, what in self._state.damaged.items() if uri in present}

    def _record(self, damaged: dict[str, str]) -> None:
        before, left = self._state, len(self._files)
        self._state = ScrubState(
            time=now(),
            files=before.files + 1,
            left=left,
            completed=before.completed if left else now(),
            damaged=damaged,
        )
        write_scrub(self._spool, self._state)
