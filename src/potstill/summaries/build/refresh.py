"""Bring the summaries of a workspace up to date: read the files that arrived since, and add their rows once.

Which files arrived follows from the commits of the tables, so that it does not matter which process does this, on
which machine, or how often one is killed. If it is no longer known (the commits are gone, or a repair replaced a file),
the summary is made again from all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import polars as pl

from potstill.events.lake import arrived_files
from potstill.problem import Problem
from potstill.summaries.build.fold import Folded, fold_decisions, fold_observations, fold_rewards
from potstill.summaries.series import DAY, Bounds, Summary
from potstill.summaries.store import (
    TABLES,
    Table,
    drop_summaries,
    name_of,
    newest_name,
    read_summary,
    write_summary,
)

if TYPE_CHECKING:
    from potstill.events.lake import File
    from potstill.workspace import Workspace

Fold = Callable[[pl.LazyFrame, Problem, Bounds], Folded]
_FOLDS: dict[Table, Fold] = {
    "decisions": fold_decisions,
    "rewards": fold_rewards,
    "observations": fold_observations,
}


def refresh_summaries(workspace: Workspace, now: int) -> list[Table]:
    """Add the rows that are new in the lake to the summaries; returns the tables that had some.

    Args:
        workspace: The workspace.
        now: Microseconds since 1970, UTC.

    Raises:
        OSError: The storage is unreachable, or a file of the lake is damaged. What is stored is complete.
    """
    return [table for table in TABLES if refresh_table(workspace, table, now)]


def refresh_table(workspace: Workspace, table: Table, now: int) -> bool:
    """Bring one summary up to date; False if it was."""
    lake, storage = workspace.lake, workspace.storage
    version = lake.version(table)
    if version is None or newest_name(storage, table) == name_of(version):  # nothing to decode
        return False
    before = read_summary(storage, table)
    if version == before.version:
        return False
    if version < before.version:  # another table is at its place, such as one from a backup
        drop_summaries(storage, table)
        before = read_summary(storage, table)
    files = arrived_files(lake, table, before.version, version) if before.version >= 0 else None
    if files is None:
        files, before = lake.files(table, version), _start(before)
    write_summary(storage, table, _added(workspace, table, before, files, version, now))
    return True


def _start(before: Summary[Any]) -> Summary[Any]:
    """An empty summary of the same kind."""
    return Summary(version=-1, total=type(before.total)())


def _added(
    workspace: Workspace, table: Table, before: Summary[Any], files: list[File], version: int, now: int
) -> Summary[Any]:
    # A clock that is far ahead must not make the cells of today coarse.
    newest = max([before.newest, *(min(file.last, now + DAY) for file in files)])
    rows = workspace.lake.read(table, files)
    cut = rows.select(pl.col("cut").max()).collect().item() if table == "observations" else None
    folded = _FOLDS[table](rows, workspace.problem, Bounds.of(newest))
    return before.plus(folded.cells, version=version, newest=newest, cut=cut or 0, versions=folded.versions)
