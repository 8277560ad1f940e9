"""Warm start: import a historical log as observations for the teacher."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl

from potstill import tables
from potstill.events import add_history, now, refuse_repeat
from potstill.events.join import ImportedFile
from potstill.problem import Continuous, InvalidObservation, Problem
from potstill.spaces import NamedActions, finite
from potstill.tables import FITS, NAMED, ROW, TIME, Columns, RowRules
from potstill.workspace import Workspace

#: Rows of a log in memory at a time.
ROWS = 200_000
#: Bins of the histogram that estimates the density of a number.
_BINS = 16


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an import.

    Attributes:
        rows: Number of rows in the log.
        observations: Number of observations made from them.
        skipped: Number of excluded rows that do not fit the problem.
        cut: Number of the cut that holds the observations.
        estimated: Whether propensities are estimates: the share of each action in the log, or a histogram.
    """

    rows: int
    observations: int
    skipped: int
    cut: int
    estimated: bool


def import_history(
    workspace: Workspace,
    log: str,
    columns: Columns,
    *,
    skip: bool = False,
    source: ImportedFile | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> ImportReport:
    """Import a historical log (CSV, Parquet or Delta Lake) as observations; the next update learns from them.

    If the log has no propensities, each action's share of the log is used instead, or a histogram of a number. The
    teacher does not need propensities, and off-policy estimates exclude such rows.

    Args:
        workspace: The workspace.
        log: Path or URL of the table.
        columns: Mapping of columns to action, reward, context and so on.
        skip: Exclude rows that do not fit instead of refusing the log.
        source: What the log was made of, if it is not what is imported: its name and hash.
        on_progress: Called with the number of rows done and the total.
    """
    name, digest = (log, _fingerprint(log)) if source is None else (source.name, source.sha256)
    refuse_repeat(workspace.lake, workspace.cuts, digest, name)
    table = tables.scan_table(log)
    rules = _rules(workspace.problem, table.collect_schema(), columns, log)
    numbered = table.with_row_index(ROW)
    checked = rules.rows(numbered)
    total, fitting = tables.collected(checked.select(pl.len(), pl.col(FITS).sum().alias("sum")), log).row(0)
    if fitting < total and not skip:
        unfit = tables.collected(rules.unfit(numbered).head(NAMED), log).rows()
        way_out = "Nothing was added: correct these rows, or leave them out with --skip-unfit"
        raise InvalidObservation(f"{tables.refusal(log, unfit, total - fitting)} {way_out}")
    if not fitting:
        raise InvalidObservation(f"{log}: none of its {total:,} rows fits the problem; nothing was added")
    used = checked.filter(FITS)
    if isinstance(columns.propensity, float) and isinstance(workspace.problem.actions, NamedActions):
        tables.check_constant_propensity(columns.propensity, _counts(used, log), log, InvalidObservation)
    estimate = _estimated(used, workspace.problem, log) if columns.propensity is None else None
    imported = ImportedFile(name=name, sha256=digest, rows=fitting)
    frames = _frames(used, log, estimate, total, digest, on_progress)
    cut = add_history(workspace.lake, workspace.cuts, workspace.problem, frames, imported)
    return ImportReport(
        rows=total, observations=fitting, skipped=total - fitting, cut=cut.number, estimated=estimate is not None
    )


def _fingerprint(log: str) -> str:
    """SHA-256 that identifies a log: of the bytes of a file, or of the URL of anything else."""
    if not Path(log).is_file():
        return hashlib.sha256(log.encode()).hexdigest()
    with Path(log).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _rules(problem: Problem, schema: pl.Schema, columns: Columns, log: str) -> RowRules:
    """Rules that map rows of the log to rows of observations."""
    features = tables.feature_columns(problem, columns, schema.names())
    needed = [(f"--feature {feature}=", name) for feature, name in features.items() if name is not None]
    tables.check_columns(schema, columns, needed, log, InvalidObservation)
    return RowRules(tables.decision_rules(problem, columns, schema, log))


def _estimated(table: pl.LazyFrame, problem: Problem, log: str) -> pl.Expr:
    """The share of each action in the log; of a number, the density by a histogram over its scale."""
    space = problem.actions
    if isinstance(space, Continuous):
        widths = np.diff(space.from_unit(np.arange(_BINS + 1) / _BINS))
        place = (_unit(space) * _BINS).floor().clip(0, _BINS - 1).cast(pl.Int32)
        counts = _counts(table.select(place.alias("action")), log)
        densities = {each: n / sum(counts.values()) / widths[each] for each, n in counts.items()}
        return place.replace_strict(densities, return_dtype=pl.Float64)
    finite(space, "a warm start without --propensity")
    counts = _counts(table, log)
    shares = {action: n / sum(counts.values()) for action, n in counts.items()}
    return pl.col("action").replace_strict(shares, return_dtype=pl.Float64)


def _unit(space: Continuous) -> pl.Expr:
    """`Continuous.unit` of the column of actions."""
    number = pl.col("action")
    if space.scale == "log":
        return (number / space.low).log() / math.log(space.high / space.low)
    return (number - space.low) / (space.high - space.low)


def _counts(table: pl.LazyFrame, log: str) -> dict[Any, int]:
    return dict(tables.collected(table.group_by("action").len(), log).rows())


def _frames(
    table: pl.LazyFrame,
    log: str,
    estimate: pl.Expr | None,
    total: int,
    digest: str,
    on_progress: Callable[[int, int], None] | None,
) -> Iterator[pl.DataFrame]:
    """Rows of observations, `ROWS` of the log at a time."""
    imported = now()
    for at in range(0, total, ROWS):
        part = tables.collected(table.filter(pl.col(ROW).is_between(at, at + ROWS, closed="left")), log)
        order = pl.col(ROW).cast(pl.Int64)
        if "time" not in part.columns:
            part = part.with_columns((order + imported).cast(TIME).alias("time"))
        if estimate is not None:
            part = part.with_columns(estimate.alias("propensity"))
        generated = pl.format("{}-{}", pl.lit(digest[:12]), order.cast(pl.String).str.zfill(12))
        yield part.select(
            (pl.coalesce("id", generated) if "id" in part.columns else generated).alias("id"),
            *(name for name in part.columns if name not in (ROW, FITS, "id")),
            pl.lit("import" if estimate is None else "import-estimated").alias("source"),
        )
        if on_progress is not None:
            on_progress(min(at + ROWS, total), total)
