"""Recall: decisions of this machine that this worker does not know, from the segments on its disk."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from potstill.events import DecisionRow
from potstill.events.wal import Header, find_decisions, last_decisions
from potstill.problem import only_actions_differ
from potstill.service.shared_ids import SharedIds
from potstill.workspace import Workspace

#: Seconds to wait for a decision that another worker is about to write, and between two looks for it.
WAIT, PAUSE = 0.25, 0.02
#: Searches at a time: each reads segments of the disk.
SEARCHES = 4
_logger = logging.getLogger(__name__)


class Recall:
    """Finds decisions of one workspace on this machine's disk.

    Args:
        workspace: The workspace.
        shared: Ids that the workers have decided; None if there is one worker, which remembers its own.
    """

    def __init__(self, workspace: Workspace, shared: SharedIds | None) -> None:
        self._spool, self._problem = workspace.segments, workspace.problem
        self._fitting = {workspace.problem.hash: True}  # by hash of a problem
        self.shared = shared if self._spool.remember else None
        self._searches = asyncio.Semaphore(SEARCHES)

    def last(self, count: int) -> list[DecisionRow]:
        """The last `count` decisions of all workers, oldest first; for a worker that starts."""
        if not self._spool.remember:
            return []
        try:
            found = last_decisions(self._spool, self._fits, count)
        except OSError as error:  # repeated requests are then decided again, which is better than none
            _logger.warning("earlier decisions cannot be read from %s: %s", self._spool.path, error)
            return []
        return sorted(found.values(), key=lambda row: row.time)

    async def find(self, ids: Sequence[str]) -> list[DecisionRow]:
        """Decisions with some ids; those that are not on disk within `WAIT` seconds are missing."""
        found: dict[str, DecisionRow] = {}
        async with self._searches:
            for _ in range(round(WAIT / PAUSE)):
                missing = [name for name in ids if name not in found]
                found |= await asyncio.to_thread(self._find, missing)
                if len(found) == len(ids):
                    break
                await asyncio.sleep(PAUSE)
        return list(found.values())

    def _find(self, ids: Sequence[str]) -> dict[str, DecisionRow]:
        try:
            return find_decisions(self._spool, self._fits, ids)
        except OSError as error:
            _logger.warning("earlier decisions cannot be read from %s: %s", self._spool.path, error)
            return {}

    def _fits(self, header: Header) -> bool:
        """Whether decisions of a segment are of this problem, maybe with other actions: their contexts are the same."""
        known = self._fitting.get(header.problem_hash)
        if known is None:
            known = self._fitting[header.problem_hash] = only_actions_differ(header.problem, self._problem)
        return known
