"""Extra contexts to imitate on: a table without actions or rewards, such as yesterday's requests."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.pipeline.engines import Engine
from potstill.pipeline.labels import LabelStore, StreamedContexts
from potstill.pipeline.shards import Table, drawn_rows, encode, none_fit, shards
from potstill.storage import child
from potstill.workspace import Workspace

#: Minimum workers, and contexts per worker, for which averaging students is faster (docs/scale.md).
FEWEST_WORKERS, CONTEXTS_PER_WORKER = 4, 2_000_000


class ExtraContexts:
    """Contexts in memory or streamed, and their entry in the lineage.

    Attributes:
        contexts: Contexts as `Still.update` takes them.
    """

    def __init__(
        self, named: str, table: Table, contexts: NDArray[np.float32] | StreamedContexts, unfit: int = 0
    ) -> None:
        self.contexts = contexts
        self._named, self._table, self._unfit = named, table, unfit

    @property
    def unfit(self) -> int:
        """Number of excluded rows that do not fit the problem; known after labelling if contexts are streamed."""
        return self.contexts.unfit if isinstance(self.contexts, StreamedContexts) else self._unfit

    @property
    def lineage_entry(self) -> dict[str, Any]:
        """Table, number of rows and SHA-256; known after labelling if contexts are streamed."""
        found: dict[str, Any] = {"table": self._named}
        if isinstance(self.contexts, StreamedContexts):
            found |= {"rows": self.contexts.rows, "sha256": self.contexts.sha256, "shards": len(self.contexts.shards)}
            found |= {"students": self.contexts.students} if self.contexts.students > 1 else {}
        else:
            found |= {"rows": len(self.contexts), "sha256": hashlib.sha256(self.contexts.tobytes()).hexdigest()}
        found |= {} if self._table.version is None else {"version": self._table.version}
        return found | ({"unfit": self.unfit} if self.unfit else {})


def extra_contexts(
    workspace: Workspace, engine: Engine, store: LabelStore, recorded: dict[str, Any] | None = None
) -> ExtraContexts | None:
    """A sample of the table that `update.contexts` names; the same table gives the same sample.

    Up to `update.contexts_in_memory` contexts are held in memory; more are streamed, and their labels are stored.

    Args:
        workspace: Workspace whose configuration names the table.
        engine: Engine that labels streamed contexts; with many workers and contexts, each trains a student.
        store: Store of the labels.
        recorded: Lineage entry to reproduce: the same version of a Delta Lake table and the same number of students.
    """
    stated = workspace.config.update
    if stated.contexts is None or not stated.contexts_at_most:
        return None
    place = stated.contexts if _is_absolute(stated.contexts) else child(workspace.url, stated.contexts)
    table = Table.at(place, (recorded or {}).get("version"))
    count, key = table.count(), Key(workspace.config.policy.seed).child("contexts")
    drawn = min(count, stated.contexts_at_most)
    if drawn > stated.contexts_in_memory:
        students = students_that_pay(engine, drawn) if recorded is None else recorded.get("students", 1)
        parts = shards(table, count, drawn)
        streamed = StreamedContexts(workspace.problem, parts, key, engine, store, students)
        return ExtraContexts(stated.contexts, table, streamed)
    rows = table.scan() if drawn == count else drawn_rows(table.scan(), count, drawn, key)
    found = encode(rows, workspace.problem, place)
    if found.unfit and not len(found.contexts):
        raise none_fit(place, found.unfit)
    return ExtraContexts(stated.contexts, table, found.contexts, found.unfit)


def students_that_pay(engine: Engine, contexts: int) -> int:
    """Number of students to train: one for each worker if that is faster than one alone, else one."""
    enough = engine.workers >= FEWEST_WORKERS and contexts >= CONTEXTS_PER_WORKER * engine.workers
    return engine.workers if enough else 1


def _is_absolute(place: str) -> bool:
    return "://" in place or place.startswith("/")
