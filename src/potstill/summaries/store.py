"""Summaries as small files of a workspace, in a folder or an object store.

A summary is one file, named by the version of the table that it was read at and created only if there is none. A
process that is killed before it has created the file leaves the one before it, and the next one adds the same rows
again: they count exactly once. Nothing here imports the libraries of the lake, so that a service can read it.
"""

from __future__ import annotations

import contextlib
from typing import Any, Literal, overload

import msgspec

from potstill.storage import AlreadyThere, Storage
from potstill.summaries.cells import DecisionCell, ObservationCell, RewardCell
from potstill.summaries.series import FORMAT, DecisionSummary, ObservationSummary, RewardSummary, Summary

#: Folder of a workspace.
FOLDER = "summaries"
#: Summaries that are kept; a reader may still be reading the last but one.
KEPT = 3
Table = Literal["decisions", "rewards", "observations"]
TABLES: tuple[Table, ...] = ("decisions", "rewards", "observations")

_EMPTY: dict[Table, Any] = {
    "decisions": DecisionSummary(version=-1, total=DecisionCell()),
    "rewards": RewardSummary(version=-1, total=RewardCell()),
    "observations": ObservationSummary(version=-1, total=ObservationCell()),
}
_DECODERS: dict[Table, msgspec.json.Decoder[Any]] = {
    "decisions": msgspec.json.Decoder(DecisionSummary),
    "rewards": msgspec.json.Decoder(RewardSummary),
    "observations": msgspec.json.Decoder(ObservationSummary),
}


@overload
def read_summary(storage: Storage, table: Literal["decisions"]) -> DecisionSummary: ...
@overload
def read_summary(storage: Storage, table: Literal["rewards"]) -> RewardSummary: ...
@overload
def read_summary(storage: Storage, table: Literal["observations"]) -> ObservationSummary: ...
@overload
def read_summary(storage: Storage, table: Table) -> Summary[Any]: ...


def read_summary(storage: Storage, table: Table) -> Summary[Any]:
    """The newest readable summary of a table of a workspace; an empty one of version -1 if there is none.

    Args:
        storage: Storage of the workspace.
        table: Name of the table.
    """
    folder = storage.within(FOLDER)
    for _ in range(2):  # a file may be replaced by a newer one between listing and reading
        for name in reversed(folder.names(table)):
            with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
                found: Summary[Any] = _DECODERS[table].decode(folder.read(f"{table}/{name}"))
                if found.format == FORMAT:
                    return found
    empty: Summary[Any] = _EMPTY[table]
    return empty


def newest_name(storage: Storage, table: Table) -> str | None:
    """Name of the newest summary's file, which tells whether anything has changed; None if there is none."""
    names = storage.within(FOLDER).names(table)
    return names[-1] if names else None


def write_summary(storage: Storage, table: Table, summary: Summary[Any]) -> None:
    """Store a summary, unless another process has stored one of the same version; then delete old ones."""
    folder = storage.within(FOLDER)
    with contextlib.suppress(AlreadyThere):
        folder.create(f"{table}/{name_of(summary.version)}", msgspec.json.encode(summary))
    for name in folder.names(table)[:-KEPT]:
        folder.delete(f"{table}/{name}")
    folder.sweep(table)


def drop_summaries(storage: Storage, table: Table) -> None:
    """Delete all summaries of a table: it was replaced by another one."""
    folder = storage.within(FOLDER)
    for name in folder.names(table):
        folder.delete(f"{table}/{name}")


def name_of(version: int) -> str:
    """Name of the summary of a version of a table."""
    return f"{version:020}.json"
