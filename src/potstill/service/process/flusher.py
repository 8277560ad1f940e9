"""``python -m potstill.service.process.flusher DIR…``: flush this machine's log into the lake, every second.

A process of its own: the lake's libraries are large, and writing tables must not delay decisions.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Sequence

from potstill.errors import PotstillError
from potstill.events import now
from potstill.events.lake import Scrubber
from potstill.storage import LocalStorage
from potstill.summaries.build import refresh_summaries
from potstill.workspace import Workspace

#: Seconds between two flushes.
INTERVAL = 1.0
#: Seconds between two looks for rows that the summaries lack, in a folder and in an object store.
SUMMARIES_FOLDER, SUMMARIES_STORE = 4.0, 20.0
_logger = logging.getLogger("potstill.service.process.flusher")  # __name__ is __main__ here


class WorkspaceFlusher:
    """The flusher of one workspace; it logs a fault once for as long as it stays the same."""

    def __init__(self, workspace: Workspace) -> None:
        self._name, self._workspace = workspace.problem.name, workspace
        self._flusher = workspace.flusher()
        self._scrubber = Scrubber(workspace.lake, workspace.spool)
        self._fault: str | None = None
        self._pause = SUMMARIES_FOLDER if isinstance(workspace.storage, LocalStorage) else SUMMARIES_STORE
        self._due, self._behind = 0.0, ""

    def flush(self, *, wait: bool = False) -> None:
        """Flush closed segments; those that fail stay in the log for the next flush."""
        try:
            report = self._flusher.flush(wait=wait)
            fault, cut = report.error, report.cut
        except OSError as error:
            fault, cut = str(error), []
        for damage in cut:
            _logger.warning("%s: damaged event log: %s", self._name, damage)
        if fault != self._fault:
            self._fault = fault
            message = f"flush failed, events stay in the log: {fault}" if fault else "flush succeeded again"
            _logger.warning("%s: %s", self._name, message)

    def summarise(self) -> None:
        """Bring the summaries that pages and metrics show up to date, if it is due."""
        if time.monotonic() < self._due:
            return
        behind, self._workspace = "", self._workspace.current()  # the actions may have changed
        try:
            refresh_summaries(self._workspace, now())
        except (OSError, PotstillError) as error:
            behind = str(error)
        if behind != self._behind:
            self._behind = behind
            _logger.warning("%s: summaries %s", self._name, f"are behind: {behind}" if behind else "are up to date")
        self._due = time.monotonic() + self._pause

    def scrub(self) -> None:
        """Check the next file of the lake for damage, if it is due."""
        try:
            for damage in self._scrubber.step():
                _logger.warning("%s: damaged lake: %s", self._name, damage)
        except OSError as error:
            _logger.debug("%s: the lake could not be scrubbed: %s", self._name, error)


def run(places: Sequence[str], ended: threading.Event) -> None:
    """Flush until stopped, and then once more, for the segments that workers have just closed."""
    flushers = [WorkspaceFlusher(Workspace(place)) for place in places]
    while not ended.wait(INTERVAL):
        for flusher in flushers:
            flusher.flush()
            flusher.summarise()
            flusher.scrub()
    for flusher in flushers:
        flusher.flush(wait=True)


def main() -> None:
    """Flush the workspaces that the arguments name."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    run(sys.argv[1:], ended)


if __name__ == "__main__":
    main()
