"""``python -m potstill.service.process.flusher DIR…``: move what is logged on this machine into the lake, every second.

A process of its own: the libraries of the lake are large, and tables are written while decisions are waited for.
"""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Sequence

from potstill.events.lake import Flusher
from potstill.events.wal.spool import Spool
from potstill.workspace import Workspace

EVERY = 1.0
_logger = logging.getLogger("potstill.service.process.flusher")  # as a process of its own it is called __main__


class Flushing:
    """The flusher of one workspace, which tells what goes wrong once."""

    def __init__(self, workspace: Workspace) -> None:
        self._name = workspace.problem.name
        self._flusher = Flusher(Spool(workspace.spool), workspace.lake)
        self._fault: str | None = None

    def flush(self, *, wait: bool = False) -> None:
        """Take what is there; what cannot be taken stays in the log and is tried again."""
        try:
            report = self._flusher.flush(wait=wait)
            fault, cut = report.error, report.cut
        except OSError as error:
            fault, cut = str(error), []
        for damage in cut:
            _logger.warning("%s: the log was damaged: %s", self._name, damage)
        if fault != self._fault:
            self._fault = fault
            _logger.warning("%s: %s", self._name, f"events stay in the log: {fault}" if fault else "events flow again")


def run(places: Sequence[str], ended: threading.Event) -> None:
    """Flush until the end is asked for, and then once more: what has just been closed is in the lake too."""
    flushers = [Flushing(Workspace(place)) for place in places]
    while not ended.wait(EVERY):
        for flusher in flushers:
            flusher.flush()
    for flusher in flushers:
        flusher.flush(wait=True)


def main() -> None:
    """Flush the workspaces that the arguments name."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    run(sys.argv[1:], ended)


if __name__ == "__main__":
    main()
