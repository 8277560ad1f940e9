"""Labels in shards: a map over shards of contexts, each of which is read, encoded, labelled and written by itself.

A shard's file says what it was made from: the teacher's state, the key and the contexts. One that is there already is
used as it is. So labelling that was stopped goes on where it was, and doing a shard twice changes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from potstill._version import __version__
from potstill.keys import Key
from potstill.pipeline.engines import Engine
from potstill.pipeline.shards import SHARD_ROWS, Encoded, Shard, none_fit, read_shard
from potstill.problem import Problem
from potstill.spaces import learning
from potstill.storage import LocalStorage, Storage, open_storage
from potstill.teachers import AnyTeacher, digest, label, metadata_of

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
#: Contexts that are to be labelled: a stretch of a table, or rows in memory.
Source = Shard | Float32
FOLDER = "labels"


class LabelStore(msgspec.Struct, frozen=True):
    """Where the labels of one version are: ``00000007-00012.safetensors`` and so on, in a folder or object store."""

    url: str
    version: int

    def name(self, number: int) -> str:
        """The file of a shard."""
        return f"{self.version:08}-{number:05}.safetensors"

    def read(self, number: int) -> tuple[Float32, Float32]:
        """The contexts and labels of a shard, in the order of its source."""
        arrays = load(self.storage.read(self.name(number)))
        return arrays["contexts"], arrays["labels"]

    def has(self, number: int, fingerprint: str) -> bool:
        """Whether a shard is there, made from just the same."""
        try:
            data = self.storage.read(self.name(number))
            load(data)
        except (FileNotFoundError, SafetensorError):
            return False
        return bool(json.loads(metadata_of(data).get("shard", "{}")).get("fingerprint") == fingerprint)

    def write(self, number: int, contexts: Float32, labels: Float32, said: dict[str, Any]) -> None:
        """Write a shard, whole; the same arguments make the same bytes."""
        # One entry: the library writes several in any order.
        data = save({"contexts": contexts, "labels": labels}, {"shard": json.dumps(said)})
        self.storage.replace(self.name(number), data)

    @property
    def storage(self) -> Storage:
        """The folder or prefix."""
        return open_storage(self.url)


@dataclass(frozen=True)
class Labelling:
    """What labelling a shard needs, beside its contexts."""

    problem: Problem
    teacher: AnyTeacher
    state: Any
    made_by: str  # what stands for teacher, state and key in a fingerprint
    drawn_by: Key
    key: Key
    store: LabelStore


class LabelledShard(NamedTuple):
    """What became of a shard.

    Attributes:
        rows: Rows that were labelled.
        unfit: Rows that were left out.
        total: The sum of the contexts, float64[d].
        sha256: SHA-256 of the contexts.
        reused: Whether the labels were there already.
    """

    rows: int
    unfit: int
    total: Float64
    sha256: str
    reused: bool


def label_shard(numbered: tuple[int, Source], work: Labelling) -> LabelledShard:
    """Label one shard, and write it, unless it is there already."""
    number, source = numbered
    read = read_shard(source, work.problem, work.drawn_by) if isinstance(source, Shard) else Encoded(source, 0)
    contexts = np.ascontiguousarray(read.contexts)
    sha256 = hashlib.sha256(contexts.data).hexdigest()
    said: dict[str, Any] = {
        "fingerprint": _digest(work.made_by, str(number), sha256),
        "features": work.problem.labels,
        "actions": msgspec.to_builtins(work.problem.actions),
    }
    reused = not len(contexts) or work.store.has(number, said["fingerprint"])
    if not reused:
        labels = label(
            learning(work.problem.actions), work.teacher, work.state, contexts, work.key.child("shard", number)
        )
        work.store.write(number, contexts, labels, said)
    return LabelledShard(len(contexts), read.unfit, contexts.sum(axis=0, dtype=np.float64), sha256, reused)


class StoredLabels:
    """Labels that were written, to be read a shard at a time."""

    def __init__(self, store: LabelStore, found: Sequence[LabelledShard]) -> None:
        self._store = store
        self._numbers = [number for number, shard in enumerate(found) if shard.rows]
        self.rows = [found[number].rows for number in self._numbers]
        self.reused = sum(found[number].reused for number in self._numbers)
        self.mean: Float64 = np.sum([shard.total for shard in found], axis=0) / max(sum(self.rows), 1)

    def read(self, shard: int) -> tuple[Float32, Float32]:
        """The contexts float32[n, d] and labels float32[n, K] of a shard."""
        return self._store.read(self._numbers[shard])


class StreamedContexts:
    """Contexts of a table that are labelled where they are, by an engine.

    Attributes:
        students: Students that are trained at a time and averaged.
        rows: Rows of the table that were labelled, when they are.
        unfit: Unfit of the table that were left out.
        sha256: SHA-256 of the contexts of the table.
    """

    def __init__(
        self,
        problem: Problem,
        shards: Sequence[Shard],
        key: Key,
        engine: Engine,
        store: LabelStore,
        students: int = 1,
    ) -> None:
        self.shards, self.students = shards, students
        self._problem, self._key, self._engine, self._store = problem, key, engine, store
        self.rows, self.unfit, self.sha256 = 0, 0, ""

    def label(
        self, teacher: AnyTeacher, state: Any, observed: Float32, key: Key, on_progress: Any = None
    ) -> StoredLabels:
        """Label them, and observed contexts float32[N, d] too; those come first."""
        made_by = _digest(__version__, repr(key), digest(state, teacher, self._problem))
        work = Labelling(self._problem, teacher, state, made_by, self._key, key, self._store)
        in_memory: list[Source] = list(_parts(observed))
        of, found = len(observed) + sum(shard.drawn for shard in self.shards), []
        for labelled in self._engine.map(label_shard, enumerate([*in_memory, *self.shards]), work):
            found.append(labelled)
            if on_progress is not None:
                on_progress(sum(shard.rows + shard.unfit for shard in found), of)
        self._describe(found[len(in_memory) :])
        return StoredLabels(self._store, found)

    def _describe(self, found: Sequence[LabelledShard]) -> None:
        self.rows, self.unfit = sum(shard.rows for shard in found), sum(shard.unfit for shard in found)
        self.sha256 = _digest(*(shard.sha256 for shard in found))
        if self.unfit and not self.rows:
            raise none_fit(self.shards[0].table.place, self.unfit)


def forget_labels(storage: Storage, newest: int) -> None:
    """Remove the labels of versions up to a number."""
    for name in storage.names(FOLDER):
        version = name.partition("-")[0]
        if version.isdigit() and int(version) <= newest:
            storage.delete(f"{FOLDER}/{name}")
    if isinstance(storage, LocalStorage):  # what a worker that was killed had begun to write
        for begun in (storage.folder / FOLDER).glob(".*.safetensors.*.tmp"):
            begun.unlink(missing_ok=True)


def _parts(contexts: Float32) -> Iterator[Float32]:
    return (contexts[at : at + SHARD_ROWS] for at in range(0, len(contexts), SHARD_ROWS))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
