"""Counts that the workers of a service share, in memory that outlives a worker and never lies in a folder.

Each worker has a region of its own: an append-only table of keys and float64 values, which any worker can read. A
replacement continues the table of the worker that it replaces, so that nothing is lost or counted twice. Where there is
no room, a worker counts in its own memory: counting must not be able to end it.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import tempfile
import threading
from array import array
from collections.abc import Iterator

#: Bytes of a worker's region: room for 100,000 counts. Memory is taken in steps, when it is needed.
REGION, STEP = 16 * 1024 * 1024, 64 * 1024
#: A region begins with the bytes in use; an entry is the length of its key, the key, and the value.
_USED, _LENGTH = struct.Struct("=Q"), struct.Struct("=Q")
_WORD = 8
_logger = logging.getLogger(__name__)


def create_memory(workers: int) -> int:
    """Shared memory for the counts of some workers: a descriptor that they inherit. It ends with the last of them."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("potstill-counts")
    else:  # macOS: a file without a name
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, workers * REGION)
    for worker in range(workers):
        os.pwrite(descriptor, bytes(STEP), worker * REGION)
    return descriptor


class Count:
    """A count; for one thread at a time."""

    __slots__ = ("_place", "_values")

    def __init__(self, values: memoryview[float] | array[float], place: int) -> None:
        self._values, self._place = values, place

    def add(self, amount: float = 1.0) -> None:
        """Add to it."""
        self._values[self._place] += amount

    @property
    def value(self) -> float:
        """Its value."""
        return self._values[self._place]


class Counts:
    """The counts of one worker, and the sums over all workers.

    Args:
        descriptor: Memory of `create_memory`; None for memory of this process alone.
        worker: Number of this worker, from 0. A replacement has the number of the worker that it replaces.
        workers: Number of workers.
    """

    def __init__(self, descriptor: int | None = None, worker: int = 0, workers: int = 1) -> None:
        self._descriptor, self._start, self._workers = descriptor, worker * REGION, workers
        size = workers * REGION
        self._memory = mmap.mmap(-1, size) if descriptor is None else mmap.mmap(descriptor, size)
        self._values = memoryview(self._memory).cast("d")
        self._reserved = self._start + max(_padded(self._used(self._start), STEP), STEP)
        self._creating = threading.Lock()
        self._own: dict[str, Count] = {}  # those that found no room
        self._known = {key: Count(self._values, place) for key, place in self._entries(worker)}

    def count(self, key: str) -> Count:
        """The count under a key; 0 at first."""
        with self._creating:
            found = self._known.get(key)
            if found is None:
                found = self._known[key] = self._create(key)
            return found

    def totals(self) -> dict[str, float]:
        """All counts, summed over the workers."""
        totals = {key: count.value for key, count in self._own.items()}
        for worker in range(self._workers):
            for key, place in self._entries(worker):
                totals[key] = totals.get(key, 0.0) + self._values[place]
        return totals

    def _entries(self, worker: int) -> Iterator[tuple[str, int]]:
        """Keys of a worker, and the places of their values."""
        start = worker * REGION
        place, end = start + _USED.size, start + self._used(start)
        while place < end:
            (length,) = _LENGTH.unpack_from(self._memory, place)
            key = place + _LENGTH.size
            place = key + _padded(length)
            yield self._memory[key : key + length].decode(), place // _WORD
            place += _WORD

    def _create(self, key: str) -> Count:
        data = key.encode()
        begin = self._start + max(self._used(self._start), _USED.size)
        value = begin + _LENGTH.size + _padded(len(data))
        if not self._reserve(value + _WORD):
            return self._count_alone(key)
        _LENGTH.pack_into(self._memory, begin, len(data))
        self._memory[begin + _LENGTH.size : begin + _LENGTH.size + len(data)] = data
        self._values[value // _WORD] = 0.0
        # Last: readers, and a replacement of this worker, see whole entries.
        _USED.pack_into(self._memory, self._start, value + _WORD - self._start)
        return Count(self._values, value // _WORD)

    def _reserve(self, end: int) -> bool:
        """Take memory up to an offset by writing to it, which fails where touching a mapping would end the process."""
        try:
            while self._reserved < end <= self._start + REGION:
                if self._descriptor is not None:
                    os.pwrite(self._descriptor, bytes(STEP), self._reserved)
                self._reserved += STEP
        except OSError:
            return False
        return self._reserved >= end

    def _count_alone(self, key: str) -> Count:
        if not self._own:
            _logger.warning("no memory for further shared counts: this worker's /metrics has new ones of its own only")
        return self._own.setdefault(key, Count(array("d", [0.0]), 0))

    def _used(self, start: int) -> int:
        return int(_USED.unpack_from(self._memory, start)[0])


def _padded(length: int, unit: int = _WORD) -> int:
    return -(-length // unit) * unit
