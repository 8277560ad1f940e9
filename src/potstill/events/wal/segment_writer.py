"""The segments that one log writes, one after the other.

A segment is ``N.open`` while it is written and ``N.log`` from then on. Numbers are never used twice.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from potstill.events.records import now
from potstill.events.wal.segment import CLOSED, OPEN, name, start
from potstill.files import sync_folder
from potstill.problem import Problem

RETRY_SECONDS = 1.0  # after a segment could not be closed


class SegmentWriter:
    """Writes segments into the folder of one writer; for one thread.

    Every method leaves files from which all that was committed can be read, also when it raises an `OSError`.
    """

    def __init__(self, folder: Path, problem: Problem, *, rotate_bytes: int, rotate_seconds: float) -> None:
        self._folder, self._problem = folder, problem
        self._rotate_bytes, self._rotate_seconds = rotate_bytes, rotate_seconds
        self._number = 0
        self._path: Path | None = None  # of the segment that is not closed yet
        self._descriptor: int | None = None  # None: nothing more may be written to it
        self._committed = 0  # bytes of it that are on disk
        self._due = 0.0  # when to close it, on the monotonic clock

    @property
    def seconds_left(self) -> float | None:
        """Until the segment is old enough to be closed; None if there is none."""
        return None if self._path is None else max(0.0, self._due - time.monotonic())

    @property
    def due(self) -> bool:
        """Whether the segment is large or old enough to be closed."""
        return self._path is not None and (self._committed >= self._rotate_bytes or self.seconds_left == 0.0)

    def commit(self, data: bytes) -> None:
        """Append frames and return when they are on disk; if that fails, the next ones go to a new segment."""
        if self._descriptor is None:
            self.finish()
            data = self._create() + data
        try:
            self._append(data)
        except BaseException:
            self._abandon()
            raise

    def finish(self) -> None:
        """Close the segment, if there is one: under its final name it can be taken. Call again if it fails."""
        if self._path is None:
            return
        self._due = time.monotonic() + RETRY_SECONDS
        self.drop_descriptor()
        if self._committed:
            self._path.rename(self._path.with_suffix(CLOSED))
        else:
            self._path.unlink(missing_ok=True)
        self._path = None
        # Whichever of its names a segment has after a loss of power, it is read.
        with contextlib.suppress(OSError):
            sync_folder(self._folder)

    def drop_descriptor(self) -> None:
        """Close the file without touching what is in it."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            # What was committed was synced: an error that comes now is about nothing that was acknowledged.
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _create(self) -> bytes:
        """A new file; its first bytes are left to be written with the first events."""
        number = self._number + 1
        path = self._folder / name(number, OPEN)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._path, self._number, self._committed = path, number, 0
        self._due = time.monotonic() + self._rotate_seconds
        return start(self._folder.name, number, now(), self._problem)

    def _append(self, data: bytes) -> None:
        assert self._descriptor is not None
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        sync_data(self._descriptor)
        if not self._committed:
            sync_folder(self._folder)
        self._committed += len(data)

    def _abandon(self) -> None:
        """Cut off what was not committed, as far as that works, and never write to the file again.

        After a failed sync the kernel may have dropped pages that it now calls clean; and where the file cannot
        be cut, readers stop at the last whole frame.
        """
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._committed)
        with contextlib.suppress(OSError):
            self.finish()


def sync_data(descriptor: int) -> None:
    """Have the disk hold what was written to a file."""
    getattr(os, "fdatasync", os.fsync)(descriptor)  # macOS has only the latter
