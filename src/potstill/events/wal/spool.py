"""The spool: the folder in which every log of a machine keeps its segments until they are in the lake."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from potstill.events.wal.segment import CLOSED, OPEN, UnreadableSegment, read, read_header
from potstill.events.wal.segment_writer import sync_data
from potstill.files import hold, make_folder, sync_folder, write_atomically

LOCK = "lock"


QUARANTINE = "quarantine"


def take_folder(folder: Path) -> int:
    """Make a writer's folder and lock it; the lock's descriptor."""
    while True:
        make_folder(folder)
        # An adopter that finds the new folder before it is locked removes it.
        with contextlib.suppress(FileNotFoundError):
            descriptor = hold(folder / LOCK, wait=True)
            assert descriptor is not None
            return descriptor


def adopt_folder(folder: Path) -> int | None:
    """Lock the folder of a writer that is no more; None if it lives, or the folder is gone or in other hands."""
    try:
        return hold(folder / LOCK, wait=False)
    except FileNotFoundError:
        return None


def remove_if_empty(folder: Path) -> None:
    """Remove a folder in which only the lock is left; for the holder of the lock. What fails is left for later."""
    with contextlib.suppress(OSError):
        if all(path.name == LOCK for path in folder.iterdir()):
            (folder / LOCK).unlink()
            folder.rmdir()


@dataclass(frozen=True)
class Pending:
    """What is not in the lake yet.

    Attributes:
        segments: how many files, those that are being written included.
        bytes: their size.
        oldest: when the oldest of them was begun, in microseconds since 1970; None if there is none.
    """

    segments: int
    bytes: int
    oldest: int | None


class Spool:
    """A folder of writers, each with a folder of its own.

    Everything here may be done while logs write and while other processes do the same.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    def writers(self) -> list[str]:
        """The writers that have a folder, dead or alive."""
        return sorted(entry.name for entry in _entries(self.path) if entry.is_dir() and entry.name != QUARANTINE)

    def closed(self, writer: str) -> list[Path]:
        """The segments of a writer that can be taken, in order.

        None beyond one that is still open: the lake takes a writer's segments in order, and would miss it.
        """
        # A folder that changes while it is listed may hide a segment that is just being renamed. All before a
        # segment that is closed are closed too, so a second listing shows them.
        seen = [path for path in self._segments(writer) if path.suffix == CLOSED]
        ready = list(takewhile(lambda path: path.suffix == CLOSED, self._segments(writer)))
        return [path for path in ready if path <= seen[-1]] if seen else []

    def adopt(self) -> list[str]:
        """Close the segments that dead writers left open, cut at their last good event; what was damaged, in words.

        What is cut off is in the quarantine folder. Folders of dead writers in which nothing is left are removed.
        """
        damages: list[str] = []
        for writer in self.writers():
            try:
                damages += self._adopt(writer)
            except OSError as error:
                damages.append(f"{self.path / writer} could not be closed for its dead writer: {error}")
        return damages

    def remove(self, writer: str, segment: Path) -> None:
        """Delete a segment that is in the lake, and the writer's folder if it was the last one of a dead writer."""
        segment.unlink(missing_ok=True)
        if not self._segments(writer):
            self._adopt(writer)

    def quarantine(self, segment: Path, start: int = 0) -> Path:
        """Keep a copy of a segment's bytes, from a place on, where nothing takes or deletes them."""
        make_folder(self.path / QUARANTINE)
        copy = self.path / QUARANTINE / f"{segment.parent.name}-{segment.stem}-{start}"
        with segment.open("rb") as file:
            file.seek(start)
            write_atomically(copy, file.read())
        sync_folder(copy.parent)
        return copy

    def pending(self) -> Pending:
        """What is not in the lake yet."""
        paths = [path for writer in self.writers() for path in self._segments(writer)]
        sizes = [size for size in map(_size, paths) if size is not None]
        begun = [created for created in map(_created, paths) if created is not None]
        return Pending(len(sizes), sum(sizes), min(begun, default=None))

    def _segments(self, writer: str) -> list[Path]:
        return sorted(Path(entry) for entry in _entries(self.path / writer) if entry.name.endswith((OPEN, CLOSED)))

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
        """Close a segment for its dead writer; the same again, after a crash in the middle, comes to the same."""
        if not path.stat().st_size:
            path.unlink()
            return None
        damage: str | None
        try:
            segment = read(path)
            damage, events, good_bytes = segment.damage, len(segment.events), segment.good_bytes
        except UnreadableSegment as error:
            damage, events, good_bytes = str(error), 0, 0
        if damage is not None:
            damage += f"; from there on it is kept in {self.quarantine(path, good_bytes)}"
        if events:
            _cut(path, good_bytes)
            path.rename(path.with_suffix(CLOSED))
        else:
            path.unlink()
        sync_folder(path.parent)
        return damage


def _cut(path: Path, size: int) -> None:
    """Cut a file, and have the disk hold what its writer may not have got to sync."""
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
        return read_header(path).created
    return None
