"""``python -m potstill.service.process.child NICE MODULE ARGUMENTS``: run a module until its parent ends.

Standard input is a pipe from the parent, so that its end shows at once when the parent is killed.
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

#: Seconds from the parent's end to a forced exit.
GRACE = 10.0


def main() -> None:
    """Run the module that the arguments name, at a lower priority."""
    threading.Thread(target=_exit_with_parent, name="potstill-parent", daemon=True).start()
    signal.signal(signal.SIGTERM, _exit)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    os.umask(0o077)  # also for libraries that create files: events hold personal data
    os.nice(int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except (OSError, ValueError) as error:  # what an operator can fix
        logging.getLogger(sys.argv[0]).error("%s", error)
        sys.exit(1)


def _exit_with_parent() -> None:
    while os.read(0, 1024):
        pass  # the parent sends nothing; only the end of the stream counts
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(1)


def _exit(_signal: int, _frame: FrameType | None) -> NoReturn:
    """Exit normally, so that exit handlers close the logs."""
    sys.exit(0)


if __name__ == "__main__":
    main()
