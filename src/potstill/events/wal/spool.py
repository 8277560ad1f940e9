"""The spool: the folder of a machine's segments that are not in the lake yet, one folder per log."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from potstill.events.wal.segment import CLOSED, OPEN, LaterFormat, UnreadableSegment, read, read_header
from potstill.events.wal.segment_writer import sync_data
from potstill.files import hold, make_folder, remove_stale, sync_folder, write_atomically

LOCK = "lock"
#: Suffix of a segment that is in the lake, kept for a while so that repeated requests find their decision.
DONE = ".done"
#: Folder of unreadable bytes that were cut off segments.
QUARANTINE = "quarantine"


def take_folder(folder: Path) -> int:
    """Create and lock a writer's folder; returns the lock's descriptor."""
    while True:
        make_folder(folder)
        # `adopt` removes a new folder that it finds before it is locked.
        with contextlib.suppress(FileNotFoundError):
            descriptor = hold(folder / LOCK, wait=True)
            assert descriptor is not None
            return descriptor


def adopt_folder(folder: Path) -> int | None:
    """Lock the folder of a dead writer; None if the writer lives, or the folder is gone or locked by another."""
    try:
        return hold(folder / LOCK, wait=False)
    except FileNotFoundError:
        return None


def remove_if_empty(folder: Path) -> None:
    """Remove a folder that holds only the lock; for the holder of the lock. Errors are ignored."""
    with contextlib.suppress(OSError):
        if all(path.name == LOCK for path in folder.iterdir()):
            (folder / LOCK).unlink()
            folder.rmdir()


@dataclass(frozen=True)
class Pending:
    """Segments that are not in the lake yet.

    Attributes:
        segments: Number of segments, open ones included.
        bytes: Their size.
        oldest: When the oldest was created, in microseconds since 1970; None if there is none.
    """

    segments: int
    bytes: int
    oldest: int | None


class Spool:
    """A folder with one subfolder per writer.

    All methods are safe while logs write and while other processes use the same spool.

    Args:
        path: The folder.
        remember: Seconds for which segments that are in the lake are kept after their last event.
    """

    def __init__(self, path: Path, *, remember: float = 0.0) -> None:
        self.path, self.remember = Path(path), remember

    def writers(self) -> list[str]:
        """Writers that have a folder, dead or alive."""
        return sorted(entry.name for entry in _entries(self.path) if entry.is_dir() and entry.name != QUARANTINE)

    def closed(self, writer: str) -> list[Path]:
        """The closed segments of a writer, in order, up to the first open one.

        The lake appends a writer's segments in order, so that it would miss the open one.
        """
        # Listing a folder may miss a segment that is being renamed meanwhile. All segments before a closed one are
        # closed too, so a second listing shows them.
        seen = [path for path in self._segments(writer) if path.suffix == CLOSED]
        ready = list(takewhile(lambda path: path.suffix == CLOSED, self._segments(writer)))
        return [path for path in ready if path <= seen[-1]] if seen else []

    def retained(self, writer: str) -> list[Path]:
        """Segments of a writer that are closed, in order; those that are in the lake and kept for a while included."""
        return sorted(Path(entry) for entry in _entries(self.path / writer) if entry.name.endswith((CLOSED, DONE)))

    def is_alive(self, writer: str) -> bool:
        """Whether a writer's process lives."""
        lock = adopt_folder(self.path / writer)
        if lock is not None:
            os.close(lock)
        return lock is None and (self.path / writer).is_dir()

    def adopt(self) -> list[str]:
        """Close the segments that dead writers left open, truncated after the last good event.

        What is cut off goes to the quarantine folder. Empty folders of dead writers are removed, and segments in the
        lake that were kept long enough.

        Returns:
            Descriptions of what was damaged.
        """
        damages: list[str] = []
        for folder in (self.path, self.path / QUARANTINE):
            remove_stale(folder)
        for writer in self.writers():
            try:
                self._expire(writer)
                damages += self._adopt(writer)
            except OSError as error:
                damages.append(f"{self.path / writer} could not be closed for its dead writer: {error}")
        return damages

    def retire(self, writer: str, segment: Path) -> None:
        """Put aside a segment that is in the lake; `adopt` deletes it later."""
        if self.remember:
            with contextlib.suppress(FileNotFoundError):
                segment.rename(segment.with_suffix(DONE))
        else:
            self.remove(writer, segment)

    def recent(self) -> list[Path]:
        """Segments with events of the last `remember` seconds, in the lake or not, newest first."""
        oldest = time.time() - self.remember
        return [path for written, path in self._dated() if written >= oldest]

    def newest(self) -> list[Path]:
        """All segments that are on the disk, in the lake or not, newest first."""
        return [path for _, path in self._dated()]

    def _dated(self) -> list[tuple[float, Path]]:
        found: list[tuple[float, Path]] = []
        for entry in (entry for writer in self.writers() for entry in _entries(self.path / writer)):
            with contextlib.suppress(FileNotFoundError):
                if entry.name.endswith((OPEN, CLOSED, DONE)):
                    found.append((entry.stat().st_mtime, Path(entry)))
        return sorted(found, reverse=True)

    def remove(self, writer: str, segment: Path) -> None:
        """Delete a segment, and the folder if it was a dead writer's last one."""
        segment.unlink(missing_ok=True)
        if not self._segments(writer):
            self._adopt(writer)

    def quarantine(self, segment: Path, start: int = 0, end: int | None = None) -> Path:
        """Copy bytes of a segment, to its end if `end` is None, to the quarantine, which nothing flushes or deletes."""
        make_folder(self.path / QUARANTINE)
        copy = self.path / QUARANTINE / f"{segment.parent.name}-{segment.stem}-{start}"
        with segment.open("rb") as file:
            file.seek(start)
            write_atomically(copy, file.read(-1 if end is None else end - start))
        return copy

    def pending(self, without: Collection[Path] = ()) -> Pending:
        """Segments that are not in the lake yet, except some."""
        paths = [path for writer in self.writers() for path in self._segments(writer) if path not in without]
        sizes = [size for size in map(_size, paths) if size is not None]
        begun = [created for created in map(_created, paths) if created is not None]
        return Pending(len(sizes), sum(sizes), min(begun, default=None))

    def _segments(self, writer: str) -> list[Path]:
        return sorted(Path(entry) for entry in _entries(self.path / writer) if entry.name.endswith((OPEN, CLOSED)))

    def _expire(self, writer: str) -> None:
        oldest = time.time() - self.remember
        for entry in _entries(self.path / writer):
            if entry.name.endswith(DONE) and entry.stat().st_mtime < oldest:
                Path(entry).unlink(missing_ok=True)

    def _adopt(self, writer: str) -> list[str]:
        folder = self.path / writer
        lock = adopt_folder(folder)
        if lock is None:
            return []
        try:
            left_open = [path for path in self._segments(writer) if path.suffix == OPEN]
            damages = [damage for path in left_open if (damage := self._close(path))]
            remove_if_empty(folder)
            return damages
        finally:
            os.close(lock)

    def _close(self, path: Path) -> str | None:
        """Close a segment for its dead writer; idempotent, also after a crash in the middle."""
        if not path.stat().st_size:
            path.unlink()
            return None
        damage: str | None
        try:
            segment = read(path)
            tail, events, good_bytes = segment.tail, len(segment.events), segment.good_bytes
            damage = None if tail is None else tail.what
        except LaterFormat:  # a later version of Potstill reads it, and cuts off what is torn
            path.rename(path.with_suffix(CLOSED))
            sync_folder(path.parent)
            return None
        except UnreadableSegment as error:
            damage, events, good_bytes = str(error), 0, 0
        if damage is not None:
            damage += f"; the rest is kept in {self.quarantine(path, good_bytes)}"
        if events:
            _truncate(path, good_bytes)
            path.rename(path.with_suffix(CLOSED))
        else:
            path.unlink()
        sync_folder(path.parent)
        return damage


def _truncate(path: Path, size: int) -> None:
    """Truncate a file, and sync it: its writer may have died before its sync."""
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, size)
        sync_data(descriptor)
    finally:
        os.close(descriptor)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except FileNotFoundError:
        return []


def _size(path: Path) -> int | None:
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_size
    return None


def _created(path: Path) -> int | None:
    with contextlib.suppress(FileNotFoundError, UnreadableSegment):
        try:
            return read_header(path).created
        except LaterFormat as error:  # its events are pending too, and hold the log's watermark back
            return error.created
    return None
