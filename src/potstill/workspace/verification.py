"""Verification of a workspace: lake, cuts, registry and log; and repair of what can be repaired."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import polars as pl

from potstill.events.join import CorruptCut, Cut, complete_cuts, last_cut, rebuild_observations
from potstill.events.lake import (
    TABLES,
    DamagedFile,
    File,
    Lake,
    Table,
    TableReport,
    replace_file,
    rows_before_compaction,
    rows_in_log,
    verify_table,
)
from potstill.events.wal import QUARANTINE, LaterFormat, Spool, UnreadableSegment, read
from potstill.registry import verify_registry
from potstill.workspace.workspace import Workspace


class VerifyReport(msgspec.Struct, kw_only=True):
    """What a verification found; damages are in words, with the place and the way out.

    Attributes:
        tables: Results of the lake's tables.
        cuts: Damage of cuts.
        registry: Damage of the registry.
        log: Damage of segments of this machine's log.
        waiting: Segments of this machine's log that a later version of Potstill wrote.
        quarantine: Files of damaged bytes that were put aside before.
        repaired: What was repaired, and what of it is lost.
    """

    tables: list[TableReport] = []
    cuts: list[str] = []
    registry: list[str] = []
    log: list[str] = []
    waiting: list[str] = []
    quarantine: list[str] = []
    repaired: list[str] = []

    @property
    def damage(self) -> list[str]:
        """All damage that is not repaired."""
        lake = [file.in_words for table in self.tables for file in table.damaged]
        records = [record for table in self.tables for record in table.records]
        return [*lake, *records, *self.cuts, *self.registry, *self.log]

    @property
    def unchecked(self) -> int:
        """Number of files of the lake without a checksum."""
        return sum(table.unchecked for table in self.tables)


def verify(workspace: Workspace, *, seal: bool = False) -> VerifyReport:
    """Read everything that a workspace stores, and report what is damaged. Changes nothing unless `seal` is true.

    Args:
        workspace: The workspace.
        seal: Record the checksums of intact data files that have none.
    """
    spool = Spool(workspace.spool)
    tables = [verify_table(workspace.lake, table, seal=seal) for table in TABLES]
    report = VerifyReport(
        tables=tables,
        cuts=list(_cut_faults(workspace)),
        registry=verify_registry(workspace.registry, _highest_version(workspace, tables)),
        quarantine=sorted(str(path) for path in (spool.path / QUARANTINE).glob("*")),
    )
    for writer in spool.writers():
        for path in spool.retained(writer):
            try:
                report.log += [damage.what for damage in read(path).damages]
            except LaterFormat as error:
                report.waiting.append(str(error))
            except FileNotFoundError:
                continue  # it was flushed meanwhile
            except UnreadableSegment as error:
                report.log.append(str(error))
    return report


def repair(workspace: Workspace, *, by: str = "") -> VerifyReport:
    """Take damaged files out of the lake, restore their rows and lost registry entries where possible.

    Decisions and rewards come first, because observations are restored from them.

    Returns:
        The report of a verification afterwards, with what was repaired.
    """
    repaired: list[str] = []
    for table in TABLES:
        damaged = verify_table(workspace.lake, table).damaged
        files = {file.uri: file for file in workspace.lake.files(table)}
        sound = workspace.lake.without(damage.uri for damage in damaged)
        repaired += [_repair_file(workspace, sound, damage, files[damage.uri]) for damage in damaged]
    if restored := workspace.registry.restore_lost():
        repaired.append(f"registry: entries {', '.join(map(str, restored))} were restored from the files of versions")
    given = _highest_version(workspace, [])
    if verify_registry(workspace.registry, given):
        entry = workspace.registry.accept_loss(given, "entries of the registry were lost", by)
        if entry is not None:
            repaired.append(
                f"registry: the loss of entries before {entry.number} is recorded; version {entry.serving} serves, and "
                f"the next version is {entry.latest + 1}"
            )
    report = verify(workspace)
    report.repaired = repaired
    return report


def _repair_file(workspace: Workspace, sound: Lake, damage: DamagedFile, file: File) -> str:
    rows, source = _known_rows(workspace, sound, damage.table, file)
    kept = replace_file(workspace.lake, damage.table, file, rows)
    restored = 0 if rows is None else len(rows)
    said = f"{restored:,} of {file.rows:,} rows were restored{f' from {source}' if restored else ''}"
    lost = "" if restored >= file.rows else "; the others are lost unless a backup has this file"
    return f"{damage.in_words}: it was taken out of the table; {said}{lost}; the file is kept at {kept}"


def _known_rows(workspace: Workspace, sound: Lake, table: Table, file: File) -> tuple[pl.DataFrame | None, str]:
    """Rows of a damaged file from the first source that has any, and the source in words.

    Args:
        workspace: The workspace.
        sound: Its lake without damaged files of this table.
        table: Name of the table.
        file: The damaged file.
    """
    merged = rows_before_compaction(workspace.lake, table, file)
    if merged is not None:
        return merged, "the files before compaction"
    if table == "observations":
        return rebuild_observations(sound, workspace.cuts, file), "decisions and rewards"
    others = sound.scan(table, days=[file.day]).collect()
    return rows_in_log(sound, table, file, Spool(workspace.spool), others), "the log"


def _highest_version(workspace: Workspace, tables: Sequence[TableReport]) -> int:
    """The highest policy version of a decision in an intact file of the lake; -1 if there is none."""
    sound = workspace.lake.without(damage.uri for table in tables for damage in table.damaged)
    highest = sound.scan("decisions").select(pl.col("policy").max()).collect().item()
    return -1 if highest is None else int(highest)


def _cut_faults(workspace: Workspace) -> Iterator[str]:
    """Complete cuts that cannot be read, or do not follow each other."""
    later: Cut | None = None
    try:
        for cut in complete_cuts(workspace.lake, workspace.cuts):
            expected = last_cut(workspace.lake) if later is None else later.after
            if cut.number != expected or cut.after >= cut.number or (later and cut.until > later.until):
                yield (
                    f"{workspace.cuts.url}: cut {expected} does not follow the one before it; restore its file from a "
                    "backup"
                )
                return
            later = cut
    except (CorruptCut, FileNotFoundError) as error:
        yield str(error)
