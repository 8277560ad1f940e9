"""``python -m potstill.service.process.child NICE MODULE ARGUMENTS``: run a module until its parent ends.

The parent holds the other end of this process's standard input, so that a parent that is killed is noticed at once.
"""

from __future__ import annotations

import logging
import os
import runpy
import signal
import sys
import threading
import time
from types import FrameType
from typing import NoReturn

#: Seconds from noticing that the parent is no more to ending by force.
GRACE = 10.0


def main() -> None:
    """Run the module that the arguments name, at a priority that is lower by so much."""
    threading.Thread(target=_end_with_parent, name="potstill-parent", daemon=True).start()
    signal.signal(signal.SIGTERM, _end)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    os.nice(int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except (OSError, ValueError) as error:  # what an operator can mend
        logging.getLogger(sys.argv[0]).error("%s", error)
        sys.exit(1)


def _end_with_parent() -> None:
    while os.read(0, 1024):
        pass  # nothing is ever sent; the end of the stream is the message
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(1)


def _end(_signal: int, _frame: FrameType | None) -> NoReturn:
    """End as a program does that has come to its end, so that logs are closed."""
    sys.exit(0)


if __name__ == "__main__":
    main()
