"""Backfill: historical observations, added as a cut of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl

from potstill.clock import now
from potstill.events.join import (
    WRITER,
    AlreadyImported,
    Cut,
    CutConflict,
    ImportedFile,
    complete_cuts,
    last_cut,
    newest_cut,
    previous_cut,
    write_cut,
)
from potstill.events.lake import Overtaken
from potstill.problem import InvalidObservation, Problem
from potstill.storage import Storage
from potstill.tables import decision_fits, reward_fits, time_fits

if TYPE_CHECKING:
    from potstill.events.lake import Lake


def add_history(
    lake: Lake,
    cuts: Storage,
    problem: Problem,
    frames: Iterator[pl.DataFrame],
    source: ImportedFile,
    made: int | None = None,
) -> Cut:
    """Add historical observations: all of them in one commit, or none.

    An interrupted import leaves a recorded cut without observations. The next join or import skips it, and a second
    attempt gets another number.

    Args:
        lake: The tables of events.
        cuts: The folder of cuts.
        problem: The observations must fit it.
        frames: `id`, `time`, `action`, `propensity`, `reward`, `source` (``"import"``, or ``"import-estimated"`` if
            propensities were worked out afterwards) and the context columns; if known, `policy` and `weight`. The
            caller sees to it that no id has been observed.
        source: The file that is imported.
        made: Time of the import, in microseconds since 1970, UTC; now if left out.

    Raises:
        InvalidObservation: A row does not fit the problem.
        AlreadyImported: The same file was imported before.
        CutConflict: Another process made a cut meanwhile; run it again.
    """
    refuse_repeat(lake, cuts, source.sha256, source.name)
    cut = _record(lake, cuts, problem, source, now() if made is None else made)
    rows, number = _observations(frames, problem, cut), cut.number
    try:
        added = lake.append_stream("observations", rows, writer=WRITER, number=number, after=cut.after)
    except Overtaken:
        added = False
    if not added:
        raise CutConflict(f"another process made a cut while {source.name} was imported; run it again")
    return cut


def refuse_repeat(lake: Lake, cuts: Storage, sha256: str, name: str) -> None:
    """Raise `AlreadyImported` if a complete cut holds the same bytes."""
    for cut in complete_cuts(lake, cuts):
        if cut.source is not None and cut.source.sha256 == sha256:
            raise AlreadyImported(f"{name} was imported before, as cut {cut.number} ({cut.source.name})")


def _record(lake: Lake, cuts: Storage, problem: Problem, source: ImportedFile, made: int) -> Cut:
    last = last_cut(lake)
    newest, stands = newest_cut(cuts, last), previous_cut(cuts, last)
    cut = Cut(
        number=max(last, newest.number if newest else 0) + 1,
        kind="import",
        made=made,
        after=last,
        until=stands.until if stands else -1,
        decisions=stands.decisions if stands else None,
        rewards=stands.rewards if stands else None,
        problem=problem.hash,
        source=source,
    )
    write_cut(cuts, cut)
    return cut


def _observations(frames: Iterator[pl.DataFrame], problem: Problem, cut: Cut) -> Iterator[pl.DataFrame]:
    done = 0
    for frame in frames:
        _check(frame, problem, done)
        done += len(frame)
        given = [pl.lit(1.0).alias("weight")] if "weight" not in frame.columns else []
        yield frame.with_columns(
            *given, rewarded=pl.lit(value=True), problem=pl.lit(problem.hash), cut=pl.lit(cut.number, pl.Int64)
        )


def _check(frame: pl.DataFrame, problem: Problem, before: int) -> None:
    """Raise for rows that do not fit; the message shows the first."""
    fits = decision_fits(problem) & reward_fits(problem) & pl.col("id").is_not_null() & time_fits()
    unfit = frame.with_row_index("row", before).filter(~fits)
    if len(unfit):
        others = f" (and {len(unfit) - 1} more rows)" if len(unfit) > 1 else ""
        raise InvalidObservation(f"row {unfit['row'][0]} does not fit the problem: {unfit.row(0, named=True)}{others}")
