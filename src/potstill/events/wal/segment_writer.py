"""The segments of one log, written one after the other.

A segment is ``N.open`` while it is written and ``N.log`` once closed. Numbers are never reused.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from potstill.clock import CLOCK, now
from potstill.events.wal.segment import CLOSED, OPEN, name, start
from potstill.files import PRIVATE, sync_folder
from potstill.problem import Problem

RETRY_SECONDS = 1.0  # after a segment could not be closed


class SegmentWriter:
    """Writes segments into the folder of one writer; for one thread.

    After every method, also one that raises an error, all committed events can be read from the files.
    """

    def __init__(self, folder: Path, problem: Problem, *, rotate_bytes: int, rotate_seconds: float) -> None:
        self._folder, self._problem = folder, problem
        self._rotate_bytes, self._rotate_seconds = rotate_bytes, rotate_seconds
        self._number = 0
        self._path: Path | None = None  # of the open segment
        self._descriptor: int | None = None  # None: the segment accepts no more writes
        self._committed = 0  # its bytes that are on disk
        self._due = 0.0  # when to close it, on the monotonic clock

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the segment is old enough to be closed; None if there is none."""
        return None if self._path is None else max(0.0, self._due - time.monotonic())

    @property
    def due(self) -> bool:
        """Whether the segment is large or old enough to be closed."""
        return self._path is not None and (self._committed >= self._rotate_bytes or self.seconds_left == 0.0)

    def commit(self, data: bytes) -> None:
        """Append frames, and return when they are on disk; after a failure the next ones go to a new segment."""
        if self._descriptor is None:
            self.finish()
        try:
            # A file of which the header could not be made must not be written to either.
            self._append(data if self._descriptor is not None else self._create() + data)
        except BaseException:
            self._abandon()
            raise

    def finish(self) -> None:
        """Close the segment, if there is one: rename it, which makes it ready for the lake. Call again if it fails."""
        if self._path is None:
            return
        self._due = time.monotonic() + RETRY_SECONDS
        self.drop_descriptor()
        if self._committed:
            self._path.rename(self._path.with_suffix(CLOSED))
        else:
            self._path.unlink(missing_ok=True)
        self._path = None
        # After a power loss the segment may have either name, and is read under both.
        with contextlib.suppress(Exception):
            sync_folder(self._folder)

    def drop_descriptor(self) -> None:
        """Close the file without changing it."""
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            # Committed events were synced: an error now concerns nothing that was acknowledged.
            with contextlib.suppress(Exception):
                os.close(descriptor)

    def _create(self) -> bytes:
        """Create a file; its first bytes are returned, to be written with the first events."""
        CLOCK.follow()
        number = self._number + 1
        path = self._folder / name(number, OPEN)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
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
        """Truncate what was not committed, if possible, and never write to the file again.

        After a failed sync the kernel may have dropped dirty pages and marked them clean. Where the file cannot be
        truncated, readers stop at the last complete frame.
        """
        # Every error: a file whose first write failed has no header, and nothing must follow in it.
        if self._descriptor is not None:
            with contextlib.suppress(Exception):
                os.ftruncate(self._descriptor, self._committed)
        self.drop_descriptor()
        with contextlib.suppress(Exception):
            self.finish()


def sync_data(descriptor: int) -> None:
    """Sync the data of a file to disk."""
    getattr(os, "fdatasync", os.fsync)(descriptor)  # macOS has only the latter
