"""A thread that runs a task periodically, with backoff while it fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from potstill.client.retry import Retry

log = logging.getLogger("potstill.client")
LONGEST = 3600.0


class Periodic:
    """Runs a task now and at an interval, in a thread, until it is stopped.

    Args:
        seconds: Seconds from the end of a call to the next; up to an hour after failures.
        work: The task; its exceptions are logged.
    """

    def __init__(self, seconds: float, work: Callable[[], object]) -> None:
        self._seconds = seconds
        self._work = work
        self._stopped = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._loop, name="potstill-sync", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait for the current call, and make no other."""
        self._stopped.set()
        self._thread.join()

    def _loop(self) -> None:
        backoff = Retry(pause=self._seconds, longest=max(self._seconds, LONGEST)).backoff
        wait = 0.0
        while not self._stopped.wait(wait):
            self._failures = 0 if self._succeeds() else self._failures + 1
            wait = backoff(self._failures) if self._failures else self._seconds

    def _succeeds(self) -> bool:
        try:
            self._work()
        except Exception as error:
            # Any error is retried: the rows are on disk.
            log.warning("sync failed, retrying: %s: %s", type(error).__name__, error)
            return False
        return True
