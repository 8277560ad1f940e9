"""Rewards that wait to be sent in one request."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from itertools import islice

from potstill.client.errors import QueueFull
from potstill.client.wire import RewardReport

log = logging.getLogger("potstill.client")


class Pending:
    """A bounded list of rewards, in order; safe to share between threads.

    Args:
        limit: of rewards that wait.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: dict[tuple[str, str], RewardReport] = {}
        self._lock = threading.Lock()
        self.refused = 0

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, report: RewardReport) -> int:
        """Keep a reward, and say how many wait; a second one of the same id and key is a retry."""
        with self._lock:
            if len(self._rows) >= self._limit:
                raise QueueFull(
                    f"{self._limit} rewards wait for a service that does not take them; nothing was added. "
                    "Send this one later, or use an EdgeClient, which keeps them on disk"
                )
            self._rows.setdefault((report.id, report.key), report)
            return len(self._rows)

    def oldest(self, count: int) -> list[RewardReport]:
        """The first to send; they stay until `sent` or `refuse` is told of them."""
        with self._lock:
            return list(islice(self._rows.values(), count))

    def sent(self, reports: Sequence[RewardReport]) -> None:
        """The service has them."""
        with self._lock:
            for report in reports:
                del self._rows[report.id, report.key]

    def refuse(self, report: RewardReport, reason: str) -> None:
        """The service does not take it, and never will."""
        self.sent([report])
        self.refused += 1
        log.warning("a reward for decision %r was refused and is dropped: %s", report.id, reason)
