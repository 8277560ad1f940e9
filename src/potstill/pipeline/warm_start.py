"""An apprentice's start: what others decided before, as observations for the teacher."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import polars as pl

from potstill.events import now
from potstill.events.backfill import add, refuse_again
from potstill.events.join.cuts import Source
from potstill.problem import Feature, InvalidObservation, Problem
from potstill.problem.observations import LARGEST
from potstill.tables.columns import TIME, context_column, context_schema
from potstill.tables.scan import scan_table
from potstill.workspace import Workspace

#: Rows of a log that are in memory at once, and that an error names.
ROWS, NAMED = 200_000, 5
WHY = "why not"


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Which column of a log is what; features are columns of their own names, unless `features` says otherwise.

    Attributes:
        action: what was done.
        reward: what came of it.
        propensity: with what probability it was done; None if that is not known.
        time: when; None if that is not known, and rows are then taken to be in order.
        features: column by feature, where it has another name.
    """

    action: str = "action"
    reward: str = "reward"
    propensity: str | None = None
    time: str | None = None
    features: Mapping[str, str] = {}


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """What an import did.

    Attributes:
        rows: in the log.
        observations: that were made of them.
        skipped: rows that do not fit, if they were to be left out.
        cut: that holds them.
        estimated: whether propensities are estimates: the share of each action in the log.
    """

    rows: int
    observations: int
    skipped: int
    cut: int
    estimated: bool


def warm_start(
    workspace: Workspace,
    log: str,
    columns: Columns,
    *,
    skip: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> Imported:
    """Import a historical log (CSV, Parquet or Delta Lake) as observations; the next update learns from them.

    Where the log says no propensities, each action's share of the log stands in for them: the teacher does not need
    them, and off-policy estimates leave such rows out.

    Args:
        workspace: the workspace.
        log: the table.
        columns: what is what.
        skip: leave out rows that do not fit, instead of refusing the log.
        on_progress: told of rows done, of how many.
    """
    digest = _fingerprint(log)
    refuse_again(workspace.lake, workspace.cuts, digest, log)
    table = _typed(workspace.problem, scan_table(log), columns, log)
    unfit = pl.col(WHY).is_not_null()
    total, bad = table.select(pl.len(), unfit.sum().alias("bad")).collect(engine="streaming").row(0)
    if bad and not skip:
        raise InvalidObservation(_refusal(table.filter(unfit), bad, log))
    if bad == total:
        raise InvalidObservation(f"{log}: none of its {total:,} rows fits the problem; nothing was added")
    table = table.filter(~unfit)
    shares = _shares(table) if columns.propensity is None else None
    cut = add(
        workspace.lake,
        workspace.cuts,
        workspace.problem,
        _frames(table, shares, total, digest, on_progress),
        Source(name=log, sha256=digest, rows=total - bad),
    )
    return Imported(rows=total, observations=total - bad, skipped=bad, cut=cut.number, estimated=shares is not None)


def _fingerprint(log: str) -> str:
    """What tells one log from another: the bytes of a file, the address of anything else."""
    if not Path(log).is_file():
        return hashlib.sha256(log.encode()).hexdigest()
    with Path(log).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _typed(problem: Problem, table: pl.LazyFrame, columns: Columns, log: str) -> pl.LazyFrame:
    """The log's rows with the columns that observations have, and why a row does not fit, if it does not."""
    schema = table.collect_schema()
    needed = {"--action": columns.action, "--reward": columns.reward}
    needed |= {f"--{name}": column for name in ("propensity", "time") if (column := getattr(columns, name))}
    for feature in problem.context:
        column = columns.features.get(feature.name, feature.name)
        if feature.missing == "error" or feature.name in columns.features:
            needed[f"--feature {feature.name}="] = column
    for option, column in needed.items():
        if column not in schema:
            raise InvalidObservation(
                f"{log}: there is no column {column!r}; name the right one with {option}. "
                f"The columns are {', '.join(schema)}"
            )
    parts = [_action(problem, columns.action), _reward(problem, columns.reward)]
    parts += [_propensity(columns.propensity)] if columns.propensity else []
    parts += [_moment(columns.time, schema[columns.time])] if columns.time else []
    types = context_schema(problem).values()
    for feature, dtype in zip(problem.context, types, strict=True):
        column = columns.features.get(feature.name, feature.name)
        if column in schema:
            parts.append(_value(feature, column, dtype))
    return table.with_row_index("row").select(
        "row", *(part.value for part in parts), pl.coalesce(part.why for part in parts).alias(WHY)
    )


class _Part(NamedTuple):
    """A column of observations, and why a row's value does not do; null if it does."""

    value: pl.Expr
    why: pl.Expr


def _part(name: str, column: str, value: pl.Expr, does: pl.Expr, must: str) -> _Part:
    found = pl.col(column).cast(pl.String).fill_null("nothing")
    said = pl.format("{} must be {}, got {}", pl.lit(column), pl.lit(must), found)
    return _Part(value.alias(name), pl.when(~does.fill_null(False)).then(said))


def _action(problem: Problem, column: str) -> _Part:
    value = pl.col(column).cast(pl.String)
    return _part("action", column, value, value.is_in(problem.actions.names), "an action of the problem")


def _reward(problem: Problem, column: str) -> _Part:
    value = pl.col(column).cast(pl.Float64, strict=False)
    stated = problem.reward
    low = -LARGEST if stated.low is None else stated.low
    high = LARGEST if stated.high is None else stated.high
    return _part("reward", column, value, value.is_between(low, high), f"a number from {low:g} to {high:g}")


def _propensity(column: str) -> _Part:
    value = pl.col(column).cast(pl.Float64, strict=False)
    return _part("propensity", column, value, (value > 0) & (value <= 1), "a probability above 0 and at most 1")


def _moment(column: str, dtype: pl.DataType) -> _Part:
    if dtype == pl.String:
        value = pl.col(column).str.to_datetime(time_unit="us", time_zone="UTC", strict=False)
    elif dtype.is_numeric():
        value = pl.from_epoch(pl.col(column), "s").cast(TIME)
    else:
        value = pl.col(column).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    return _part("time", column, value, value.is_not_null(), "a time, as ISO 8601 or seconds since 1970")


def _value(feature: Feature, column: str, dtype: pl.DataType) -> _Part:
    value = pl.col(column).cast(dtype, strict=False)
    does = value.is_finite() if dtype == pl.Float64 else value.is_not_null()
    if feature.missing != "error":
        does |= pl.col(column).is_null()
    return _part(context_column(feature.name), column, value, does, f"what feature {feature.name} takes")


def _refusal(unfit: pl.LazyFrame, count: int, log: str) -> str:
    rows = unfit.select("row", WHY).head(NAMED).collect().rows()
    first = "; ".join(f"row {row}: {why}" for row, why in rows)
    more = f"; and {count - len(rows):,} more rows" if count > len(rows) else ""
    return f"{log}: {first}{more}. Nothing was added: mend them, or leave such rows out with --skip-unfit"


def _shares(table: pl.LazyFrame) -> dict[str, float]:
    counted = table.group_by("action").len().collect(engine="streaming")
    total = counted["len"].sum()
    return {action: n / total for action, n in counted.rows()}


def _frames(
    table: pl.LazyFrame,
    shares: dict[str, float] | None,
    total: int,
    digest: str,
    on_progress: Callable[[int, int], None] | None,
) -> Iterator[pl.DataFrame]:
    """The rows as observations, a part at a time."""
    imported = now()
    for at in range(0, total, ROWS):
        part = table.filter(pl.col("row").is_between(at, at + ROWS, closed="left")).collect(engine="streaming")
        order = pl.col("row").cast(pl.Int64)
        if "time" not in part.columns:
            part = part.with_columns((order + imported).cast(TIME).alias("time"))
        if shares is not None:
            share = pl.col("action").replace_strict(shares, return_dtype=pl.Float64)
            part = part.with_columns(share.alias("propensity"))
        yield part.select(
            pl.format("{}-{}", pl.lit(digest[:12]), order.cast(pl.String).str.zfill(12)).alias("id"),
            *(name for name in part.columns if name not in ("row", WHY)),
            pl.lit("import" if shares is None else "import-estimated").alias("source"),
        )
        if on_progress is not None:
            on_progress(min(at + ROWS, total), total)
