"""Ids that the workers of a service have decided, in memory that they share, as hashes of 48 bits.

A worker looks in the tables of all workers and writes only its own, so that there are no locks. The low bits of a hash
choose a set of `WAYS` entries, one cache line, which holds the high bits; the oldest entry is replaced. So an id is
known for the next 250,000 decisions of its worker but for one in 100,000, and one in 100 million is taken for known.
Python's own hash is used, which is there already: the parent states its seed (`hash_seed`).
"""

from __future__ import annotations

import mmap
import os
import secrets
import sys
import tempfile
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SETS, WAYS = 2**16, 16
_WORD = 4
#: Bytes of a worker's table, and of one of its sets.
REGION, _SET = SETS * WAYS * _WORD, WAYS * _WORD


def create_memory(workers: int) -> int:
    """Shared memory for the tables of some workers: a descriptor that they inherit. It ends with the last of them."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("potstill-ids")
    else:  # macOS: a file without a name
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    for worker in range(workers):  # all at once: touching memory that cannot be had ends a process
        os.pwrite(descriptor, bytes(REGION), worker * REGION)
    return descriptor


def hash_seed() -> dict[str, str]:
    """The environment variable with which workers hash alike."""
    return {"PYTHONHASHSEED": str(1 + secrets.randbelow(2**32 - 1))}


class SharedIds:
    """The ids of one problem.

    Args:
        descriptor: Memory of `create_memory`.
        worker: Number of this worker, from 0. A replacement has the number of the worker that it replaces.
        workers: Number of workers.
        problem: Name of the problem; each has ids of its own.
    """

    def __init__(self, descriptor: int, worker: int, workers: int, problem: str) -> None:
        self._memory = mmap.mmap(descriptor, workers * REGION)
        self._tables = np.frombuffer(self._memory, np.uint32).reshape(workers, SETS, WAYS)
        self._salt = hash(problem)
        self._own = memoryview(self._memory)[worker * REGION : (worker + 1) * REGION].cast("I")
        self._own_table = self._tables[worker]
        self._hashed: tuple[object, tuple[NDArray[np.int64], NDArray[np.uint32]]]
        self._hashed = None, (np.zeros(0, np.int64), np.zeros(0, np.uint32))
        self._next = bytearray(SETS)  # the entry of a set that is written next
        self._next_table = np.frombuffer(self._next, np.uint8)

    def has(self, name: str) -> bool:
        """Whether a worker has decided an id."""
        one = hash(name) ^ self._salt
        wanted, start = (one >> 32 & 0xFFFFFFFF).to_bytes(_WORD, sys.byteorder), one % SETS * _SET
        for at in range(start, len(self._memory), REGION):  # noqa: SIM110 (a generator takes twice as long)
            if wanted in self._memory[at : at + _SET]:
                return True
        return False

    def seen(self, ids: Sequence[str | None]) -> list[int]:
        """Places of the ids that a worker has decided."""
        if len(ids) == 1:
            return [0] if ids[0] is not None and self.has(ids[0]) else []
        sets, entries = self._hashes(ids)
        column, known = entries[:, None], set[int]()
        for table in self._tables:
            found = table.take(sets, axis=0) == column
            if found.any():
                known.update(np.flatnonzero(found.any(axis=1)).tolist())
        return sorted(place for place in known if ids[place] is not None)

    def add(self, ids: Sequence[str | None]) -> None:
        """Add ids that this worker decides."""
        if len(ids) == 1:
            if ids[0] is not None:
                self._add(ids[0])
            return
        sets, entries = self._hashes(ids)
        while len(sets):
            ways = self._next_table[sets]
            self._next_table[sets] = ways + 1
            ways %= WAYS
            self._own_table[sets, ways] = entries
            lost = self._own_table[sets, ways] != entries  # to another of the same set
            sets, entries = sets[lost], entries[lost]

    def _add(self, name: str) -> None:
        one = hash(name) ^ self._salt
        chosen = one % SETS
        way = self._next[chosen]
        self._own[chosen * WAYS + way % WAYS] = one >> 32 & 0xFFFFFFFF
        self._next[chosen] = (way + 1) % 256

    def _hashes(self, ids: Sequence[str | None]) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """Set and entry of each id. Those that are not stated share one, which `seen` leaves out."""
        if self._hashed[0] is not ids:  # a batch is first looked for and then added
            hashes = np.array(list(map(hash, ids)), np.int64) ^ self._salt
            self._hashed = ids, (hashes & (SETS - 1), (hashes >> 32).astype(np.uint32))
        return self._hashed[1]
