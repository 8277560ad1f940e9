"""Labels in shards: each shard of contexts is read, encoded, labelled and written independently.

A shard's file holds a fingerprint of its inputs: the teacher's state, the key and the contexts. A file with a matching
fingerprint is reused. Interrupted labelling therefore resumes, and labelling a shard twice is idempotent.
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
from potstill.spaces import learning, masked_learning
from potstill.storage import LocalStorage, Storage, open_storage
from potstill.teachers import AnyTeacher, digest, label, metadata_of

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
#: Contexts to label: a range of a table, or rows in memory.
Source = Shard | Float32
FOLDER = "labels"


class LabelStore(msgspec.Struct, frozen=True):
    """The labels of one version: files ``00000007-00012.safetensors`` and so on, in a folder or object store."""

    url: str
    version: int

    def name(self, number: int) -> str:
        """File name of a shard."""
        return f"{self.version:08}-{number:05}.safetensors"

    def read(self, number: int) -> tuple[Float32, Float32]:
        """Contexts and labels of a shard, in the order of its source."""
        arrays = load(self.storage.read(self.name(number)))
        return arrays["contexts"], arrays["labels"]

    def has(self, number: int, fingerprint: str) -> bool:
        """Whether a readable shard with this fingerprint exists."""
        try:
            data = self.storage.read(self.name(number))
            load(data)
        except (FileNotFoundError, SafetensorError):
            return False
        return bool(json.loads(metadata_of(data).get("shard", "{}")).get("fingerprint") == fingerprint)

    def write(self, number: int, contexts: Float32, labels: Float32, metadata: dict[str, Any]) -> None:
        """Write a shard atomically; equal arguments give equal bytes."""
        # A single metadata entry, because safetensors writes several in arbitrary order.
        data = save({"contexts": contexts, "labels": labels}, {"shard": json.dumps(metadata)})
        self.storage.replace(self.name(number), data)

    @property
    def storage(self) -> Storage:
        """The folder or prefix."""
        return open_storage(self.url)


@dataclass(frozen=True)
class LabelTask:
    """The arguments of labelling that all shards share."""

    problem: Problem
    teacher: AnyTeacher
    state: Any
    provenance: str  # digest of teacher, state and key, for fingerprints
    sample_key: Key
    key: Key
    store: LabelStore
    masked: bool = False


class LabelledShard(NamedTuple):
    """Result of labelling a shard.

    Attributes:
        rows: Number of labelled rows.
        unfit: Number of excluded rows that do not fit the problem.
        total: Sum of the contexts, float64[d].
        sha256: SHA-256 of the contexts.
        reused: Whether existing labels were reused.
    """

    rows: int
    unfit: int
    total: Float64
    sha256: str
    reused: bool


def label_shard(numbered: tuple[int, Source], task: LabelTask) -> LabelledShard:
    """Label and write one shard, unless its labels exist."""
    number, source = numbered
    read = read_shard(source, task.problem, task.sample_key) if isinstance(source, Shard) else Encoded(source, 0)
    contexts = np.ascontiguousarray(read.contexts)
    sha256 = hashlib.sha256(contexts.data).hexdigest()
    metadata: dict[str, Any] = {
        "fingerprint": _digest(task.provenance, str(number), sha256),
        "features": task.problem.labels,
        "actions": msgspec.to_builtins(task.problem.actions),
    }
    reused = not len(contexts) or task.store.has(number, metadata["fingerprint"])
    if not reused:
        space = task.problem.actions
        imitation = masked_learning(space) if task.masked else learning(space)
        labels = label(imitation, task.teacher, task.state, contexts, task.key.child("shard", number))
        task.store.write(number, contexts, labels, metadata)
    return LabelledShard(len(contexts), read.unfit, contexts.sum(axis=0, dtype=np.float64), sha256, reused)


class StoredLabels:
    """Stored labels, read one shard at a time."""

    def __init__(self, store: LabelStore, found: Sequence[LabelledShard]) -> None:
        self._store = store
        self._numbers = [number for number, shard in enumerate(found) if shard.rows]
        self.rows = [found[number].rows for number in self._numbers]
        self.reused = sum(found[number].reused for number in self._numbers)
        self.mean: Float64 = np.sum([shard.total for shard in found], axis=0) / max(sum(self.rows), 1)

    def read(self, shard: int) -> tuple[Float32, Float32]:
        """Contexts float32[n, d] and labels float32[n, K] of a shard."""
        return self._store.read(self._numbers[shard])


class StreamedContexts:
    """Contexts of a table that an engine labels shard by shard.

    Attributes:
        students: Number of students trained in parallel and averaged.
        rows: Number of labelled rows of the table; 0 before labelling.
        unfit: Number of excluded rows that do not fit the problem.
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
        self,
        teacher: AnyTeacher,
        state: Any,
        observed: Float32,
        key: Key,
        on_progress: Any = None,
        *,
        masked: bool = False,
    ) -> StoredLabels:
        """Label observed contexts float32[N, d], then the contexts of the table; under random masks if `masked`."""
        stated = (__version__, repr(key), digest(state, teacher, self._problem), *(("masked",) if masked else ()))
        task = LabelTask(self._problem, teacher, state, _digest(*stated), self._key, key, self._store, masked)
        in_memory: list[Source] = list(_parts(observed))
        of, found = len(observed) + sum(shard.drawn for shard in self.shards), []
        for labelled in self._engine.map(label_shard, enumerate([*in_memory, *self.shards]), task):
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
    """Delete the labels of versions up to a number."""
    for name in storage.names(FOLDER):
        version = name.partition("-")[0]
        if version.isdigit() and int(version) <= newest:
            storage.delete(f"{FOLDER}/{name}")
    if isinstance(storage, LocalStorage):  # partial files of killed workers
        for partial in (storage.folder / FOLDER).glob(".*.safetensors.*.tmp"):
            partial.unlink(missing_ok=True)


def _parts(contexts: Float32) -> Iterator[Float32]:
    return (contexts[at : at + SHARD_ROWS] for at in range(0, len(contexts), SHARD_ROWS))


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
