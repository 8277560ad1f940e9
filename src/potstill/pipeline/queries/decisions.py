"""The latest decisions, and those of a unit, with what is known of their rewards."""

from __future__ import annotations

import datetime as dt
from typing import Any

import polars as pl

from potstill.pipeline.queries.events import latest, microseconds, moment
from potstill.workspace import Workspace

#: A reward may be up to this long before its decision, as clocks differ; the join counts such rewards.
SKEW = dt.timedelta(minutes=1)
#: The most rewards that are read for a page of decisions.
MOST_REWARDS = 100_000
_SHOWN = ("id", "action", "propensity", "policy", "unit", "mode", "arm", "log")


def decisions(
    workspace: Workspace, *, limit: int, unit: str | None = None, before: int | None = None
) -> dict[str, Any]:
    """The latest decisions, newest first.

    Args:
        workspace: The workspace.
        limit: The most decisions.
        unit: Only those of this unit.
        before: Only those before this time; microseconds since 1970.
    """
    keep = pl.lit(value=True) if unit is None else pl.col("unit") == unit
    if before is not None:
        keep &= pl.col("time") < moment(before)
    files = [file for file in workspace.lake.files("decisions") if before is None or file.first < before]
    found = latest(workspace, "decisions", keep, limit + 1, files)
    shown = found.head(limit)
    return {
        "decisions": [*_rows(shown, _rewards(workspace, shown))],
        "older": microseconds(shown["time"][-1]) if len(found) > limit else None,
    }


def _rewards(workspace: Workspace, shown: pl.DataFrame) -> dict[str, tuple[int, float]]:
    """Number of rewards and the last one, by id."""
    if not len(shown):
        return {}
    ids = pl.col("id").is_in(shown["id"].implode())
    oldest: dt.datetime = shown["time"].min()  # type: ignore[assignment]
    files = [file for file in workspace.lake.files("rewards") if file.last >= microseconds(oldest - SKEW)]
    rows = latest(workspace, "rewards", ids, MOST_REWARDS, files)
    counted = rows.sort("time").group_by("id").agg(pl.len(), pl.col("reward").last())
    return {name: (count, reward) for name, count, reward in counted.iter_rows()}


def _rows(shown: pl.DataFrame, rewards: dict[str, tuple[int, float]]) -> list[dict[str, Any]]:
    return [
        {name: row[name] for name in _SHOWN}
        | {"time": row["time"], "rewards": rewards.get(row["id"], (0, 0.0))[0]}
        | {"reward": rewards[row["id"]][1] if row["id"] in rewards else None}
        for row in shown.iter_rows(named=True)
    ]
