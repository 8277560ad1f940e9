"""Forget a unit: erase a person's events from log, lake and observations, and say what policies learnt from them."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from potstill.clock import now
from potstill.errors import PotstillError
from potstill.events import DecisionRow
from potstill.events.lake import TABLES, erase, ids_of_unit
from potstill.events.wal import QUARANTINE, UnreadableSegment, read
from potstill.policy import InvalidPolicy
from potstill.registry import CorruptVersion
from potstill.workspace.design import forget_in_design
from potstill.workspace.workspace import Workspace


class CannotForget(PotstillError, RuntimeError):
    """Something of a unit could not be erased; nothing was erased, or the message says what."""


class ForgetReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was erased, and what still holds something of it.

    Attributes:
        time: When, in microseconds since 1970, UTC.
        rows: Number of rows erased from each table.
        segments: Number of log segments of this machine deleted, which had been kept for repeated requests.
        versions: Versions that learnt from its observations. Their weights are not changed.
        states: Those of them whose teacher's state is stored, from which updates continue.
        elsewhere: Logs of other machines, and of open segments here, that may still hold events.
        quarantine: Files of unreadable bytes of the log, which may hold something.
    """

    time: int
    rows: dict[str, int]
    segments: int
    versions: list[int]
    states: list[int]
    elsewhere: list[str]
    quarantine: list[str]

    @property
    def words(self) -> list[str]:
        """What an operator should know and do."""
        found: list[str] = []
        if self.versions:
            found.append(
                f"versions {_ranges(self.versions)} learnt from these observations; their weights are not changed, and "
                "potstill reproduce will differ for them"
            )
        if self.states:
            found.append(
                f"the teacher of versions {_ranges(self.states)} remembers them in sums or samples, and updates "
                "continue from the serving one; to learn without them, change an option of the teacher in "
                "potstill.toml, which makes the next update learn from all remaining observations"
            )
        found += [
            f"{log} may hold further events: run it again there, or when its segment is closed"
            for log in self.elsewhere
        ]
        found += [
            f"{path} holds unreadable bytes of the log: delete it if they may be this unit's"
            for path in self.quarantine
        ]
        found.append("backups made before still hold these events; running services remember decisions for minutes")
        return found


def forget_unit(workspace: Workspace, unit: str) -> ForgetReport:
    """Erase the decisions of a unit, their rewards and their observations.

    Each table is changed in commits of its own: after an interruption, run it again.

    Args:
        workspace: The workspace. Updates on other machines may fail once while files are replaced.
        unit: Name of the unit.

    Raises:
        CannotForget: This machine's log could not be flushed.
    """
    if not unit:
        raise CannotForget("state the unit to forget")
    flushed = workspace.flusher().flush()
    if flushed.error:
        raise CannotForget(f"the log could not be flushed, and nothing was erased: {flushed.error}")
    ids = ids_of_unit(workspace.lake, unit)
    versions = _versions(workspace, _cuts(workspace, ids))
    # Observations last: their ids find the rest if this is interrupted.
    rows = {table: erase(workspace.lake, table, ids) for table in ("rewards", "decisions", "observations")}
    forget_in_design(workspace.storage, unit)
    return ForgetReport(
        time=now(),
        rows={table: rows[table] for table in TABLES},
        segments=_delete_segments(workspace, unit, ids),
        versions=versions,
        states=[version for version in versions if _has_state(workspace, version)],
        elsewhere=_elsewhere(workspace),
        quarantine=[str(path) for path in sorted((workspace.spool / QUARANTINE).glob("*")) if path.is_file()],
    )


def _cuts(workspace: Workspace, ids: set[str]) -> list[int]:
    """Cuts with observations of some ids."""
    rows = workspace.lake.scan("observations").filter(
        pl.col("id").is_in(pl.Series(sorted(ids), dtype=pl.String()).implode())
    )
    return sorted(rows.select(pl.col("cut").unique()).collect(engine="streaming")["cut"].to_list())


def _versions(workspace: Workspace, cuts: list[int]) -> list[int]:
    """Versions whose policy learnt from one of some cuts."""
    found: list[int] = []
    for one in workspace.registry.versions() if cuts else ():
        with contextlib.suppress(CorruptVersion, InvalidPolicy):
            origin: dict[str, Any] = workspace.registry.policy(one.version).metadata.lineage.origin or {}
            if origin.get("cut", 0) >= cuts[0]:
                found.append(one.version)
    return found


def _has_state(workspace: Workspace, version: int) -> bool:
    return any(name.endswith(".teacher") for name in workspace.registry.storage.names(f"versions/{version}"))


def _delete_segments(workspace: Workspace, unit: str, ids: set[str]) -> int:
    """Delete this machine's segments that are in the lake and hold events of the unit."""
    deleted = 0
    for writer in workspace.segments.writers():
        for path in workspace.segments.retained(writer):
            if path.suffix == ".done" and _holds(path, unit, ids):
                path.unlink(missing_ok=True)
                deleted += 1
    return deleted


def _holds(path: Path, unit: str, ids: set[str]) -> bool:
    try:
        events = read(path).events
    except (UnreadableSegment, FileNotFoundError):
        return False
    for event in events:
        row = event if isinstance(event, DecisionRow) else getattr(event, "decision", None)
        if (row is not None and row.unit == unit) or getattr(row or event, "id", None) in ids:
            return True
    return False


def _elsewhere(workspace: Workspace) -> list[str]:
    return [f"log {mark.name}" for mark in workspace.watermarks.all() if mark.open and mark.gone is None]


def _ranges(numbers: list[int]) -> str:
    """Numbers as text, such as ``2 to 5, 9``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(f"{part[0]} to {part[-1]}" if len(part) > 1 else f"{part[0]}" for part in parts)
