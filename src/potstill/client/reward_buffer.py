"""Buffer of rewards that are sent in batches."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from itertools import islice

from potstill.client.errors import QueueFull
from potstill.client.wire import RewardReport

log = logging.getLogger("potstill.client")


class RewardBuffer:
    """A bounded buffer of rewards, in order; thread-safe.

    Args:
        limit: The most pending rewards.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: dict[tuple[str, str], RewardReport] = {}
        self._lock = threading.Lock()
        self.refused = 0

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, report: RewardReport) -> int:
        """Add a reward; returns how many are pending. A second one with the same id and key is a retry."""
        with self._lock:
            if len(self._rows) >= self._limit:
                raise QueueFull(
                    f"{self._limit} rewards are pending, which is the limit; nothing was added. "
                    "Retry later, or use an EdgeClient, which stores rewards on disk"
                )
            self._rows.setdefault((report.id, report.key), report)
            return len(self._rows)

    def oldest(self, count: int) -> list[RewardReport]:
        """The oldest rewards; they stay until `sent` or `refuse`."""
        with self._lock:
            return list(islice(self._rows.values(), count))

    def sent(self, reports: Sequence[RewardReport]) -> None:
        """Remove rewards that the service has acknowledged."""
        with self._lock:
            for report in reports:
                del self._rows[report.id, report.key]

    def refuse(self, report: RewardReport, reason: str) -> None:
        """Remove a reward that the service has refused."""
        self.sent([report])
        self.refused += 1
        log.warning("dropped a refused reward of decision %r: %s", report.id, reason)
