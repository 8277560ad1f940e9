"""A thread that does something every so often, and less often while it fails."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from potstill.client.retry import Retry

log = logging.getLogger("potstill.client")
LONGEST = 3600.0


class Every:
    """Calls a function now and every so many seconds, in a thread, until it is stopped.

    Args:
        seconds: from the end of a call to the next; after failures up to an hour.
        work: what is done; what it raises is logged.
    """

    def __init__(self, seconds: float, work: Callable[[], object]) -> None:
        self._seconds = seconds
        self._work = work
        self._stopped = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._loop, name="potstill-sync", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait for the call under way, and make no other."""
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
            # Whatever it is, the next time may be better, and the rows are on disk.
            log.warning("sync failed, and is tried again: %s: %s", type(error).__name__, error)
            return False
        return True
