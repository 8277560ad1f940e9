"""The join: decisions and their rewards become observations, one cut at a time."""

from potstill.events.join.cuts import (
    WRITER,
    Aggregate,
    AlreadyImported,
    CorruptCut,
    Cut,
    CutConflict,
    ImportedFile,
    complete_cuts,
    last_cut,
    newest_cut,
    previous_cut,
    read_cut,
    write_cut,
)
from potstill.events.join.join import join, preview
from potstill.events.join.rebuild import rebuild_observations
from potstill.events.join.report import JoinReport, RewardCounts
from potstill.events.join.totals import add_join

__all__ = [
    "WRITER",
    "Aggregate",
    "AlreadyImported",
    "CorruptCut",
    "Cut",
    "CutConflict",
    "ImportedFile",
    "JoinReport",
    "RewardCounts",
    "add_join",
    "complete_cuts",
    "join",
    "last_cut",
    "newest_cut",
    "preview",
    "previous_cut",
    "read_cut",
    "rebuild_observations",
    "write_cut",
]
