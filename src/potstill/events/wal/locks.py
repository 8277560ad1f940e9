"""Locks between processes, which end with the process that holds them however it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path


def hold(path: Path, *, wait: bool) -> int | None:
    """Lock a file, which is made if it is not there: its descriptor, or None if another holds it and `wait` is false.

    Close the descriptor to let go. A `FileNotFoundError` means that the folder is not there.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is(path, descriptor):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        # The holder before has removed the file: the lock on it means nothing to those who come later.
        os.close(descriptor)


def _is(path: Path, descriptor: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    return False
