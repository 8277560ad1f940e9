"""Rows of the lake as cells: one grouped scan of a table's new files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import polars as pl

from potstill.problem import Problem
from potstill.summaries.build.columns import (
    IS_EXACT,
    PROPENSITY,
    agrees,
    label_of,
    mode_of,
    start_of,
    uniform_weight,
    value_of,
)
from potstill.summaries.cells import ONLINE, OTHERS, DecisionCell, ObservationCell, RewardCell
from potstill.summaries.series import Bounds, VersionTotal
from potstill.summaries.sums import Sums, Weighted

#: Modes and sources in which the policy decides.
_DECIDES = (ONLINE, "log")


class Folded(NamedTuple):
    """Cells by their start, and totals by version."""

    cells: dict[int, Any]
    versions: dict[int, VersionTotal]


def fold_decisions(rows: pl.LazyFrame, problem: Problem, bounds: Bounds) -> Folded:
    """Cells of rows of the table ``decisions``."""
    grouped = (
        rows.select(start_of(bounds), mode_of(), "arm", "policy", label_of(problem), "time", agrees=agrees(problem))
        .group_by("start", "mode", "arm", "policy", "label")
        .agg(
            n=pl.len(),
            first=pl.col("time").min(),
            last=pl.col("time").max(),
            compared=pl.col("agrees").count(),
            agreed=pl.col("agrees").sum(),
        )
        .with_columns(pl.col("first", "last").dt.epoch("us"))
        .collect(engine="streaming")
    )
    cells: dict[int, DecisionCell] = {}
    versions: dict[int, VersionTotal] = {}
    for row in grouped.sort("start", "policy", "mode", "label", "arm", nulls_last=True).iter_rows(named=True):
        _add(cells, row["start"], _decisions(row))
        if row["mode"] in _DECIDES and row["policy"] is not None:
            total = VersionTotal(first=row["first"], last=row["last"], actions={row["label"]: row["n"]})
            _add(versions, row["policy"], total)
    return Folded(cells, versions)


def fold_rewards(rows: pl.LazyFrame, problem: Problem, bounds: Bounds) -> Folded:
    """Cells of rows of the table ``rewards``."""
    del problem
    value = pl.col("reward")
    grouped = (
        rows.select(start_of(bounds), "reward")
        .group_by("start")
        .agg(n=value.count(), total=value.sum(), squares=(value**2).sum())
        .collect(engine="streaming")
    )
    found = {row["start"]: RewardCell(rewards=_sums(row)) for row in grouped.iter_rows(named=True)}
    return Folded(found, {})


def fold_observations(rows: pl.LazyFrame, problem: Problem, bounds: Bounds) -> Folded:
    """Cells of rows of the table ``observations``."""
    prepared = value_of(rows, problem).select(
        start_of(bounds),
        "source",
        "arm",
        "policy",
        label_of(problem),
        "rewarded",
        "time",
        r="value",
        u=uniform_weight(problem),
        w=1 / PROPENSITY,
        exact=_is_exact(problem),
    )
    r = pl.col("r")
    grouped = (
        prepared.with_columns(exact=(pl.col("exact") & pl.col("u").is_finite()).fill_null(value=False))
        .group_by("start", "source", "arm", "policy", "label", "exact")
        .agg(
            pl.col("rewarded").sum(),
            n=r.count(),
            total=r.sum(),
            squares=(r**2).sum(),
            first=pl.col("time").min(),
            last=pl.col("time").max(),
            **_weighted("u"),
            **_weighted("w"),
        )
        .with_columns(pl.col("first", "last").dt.epoch("us"))
        .collect(engine="streaming")
    )
    cells: dict[int, ObservationCell] = {}
    versions: dict[int, VersionTotal] = {}
    order = ("start", "policy", "source", "label", "arm", "exact")
    for row in grouped.sort(order, nulls_last=True).iter_rows(named=True):
        _add(cells, row["start"], _observations(row))
        if row["source"] in _DECIDES and row["policy"] is not None:
            _add(versions, row["policy"], VersionTotal(first=row["first"], last=row["last"], rewards=_sums(row)))
    return Folded(cells, versions)


def _is_exact(problem: Problem) -> pl.Expr:
    """Whether the propensity is that of the row's action among the actions that the problem has now."""
    same = pl.col("problem").fill_null(problem.hash) == problem.hash
    return IS_EXACT & same & pl.col("reward").is_not_null()


def _decisions(row: Mapping[str, Any]) -> DecisionCell:
    number = row["n"]
    return DecisionCell(
        decisions=number,
        modes={row["mode"]: number},
        arms={} if row["arm"] is None else {row["arm"]: number},
        actions={row["label"]: number},
        compared=row["compared"],
        agreed=row["agreed"],
    )


def _observations(row: Mapping[str, Any]) -> ObservationCell:
    sums = _sums(row)
    cell = ObservationCell(
        rewarded=row["rewarded"],
        sources={row["source"]: sums},
        arms={} if row["arm"] is None else {row["arm"]: sums},
        actions={row["label"]: sums},
    )
    if not row["exact"]:
        return cell
    always = {} if row["label"] == OTHERS else {row["label"]: _weights(row, "w")}
    return cell + ObservationCell(exact=sums, uniform=_weights(row, "u"), always=always)


def _weighted(weight: str) -> dict[str, pl.Expr]:
    """Sums of a weight with powers of the reward, named after it."""
    w, r = pl.col(weight), pl.col("r")
    products = {"w": w, "ww": w**2, "wr": w * r, "wrr": w * r**2, "wwr": w**2 * r, "wwrr": w**2 * r**2}
    return {f"{weight}_{name}": product.sum() for name, product in products.items()}


def _weights(row: Mapping[str, Any], weight: str) -> Weighted:
    return Weighted(**{name: row[f"{weight}_{name}"] for name in Weighted.__struct_fields__})


def _sums(row: Mapping[str, Any]) -> Sums:
    return Sums(row["n"], row["total"], row["squares"])


def _add(into: dict[int, Any], key: int, value: Any) -> None:
    into[key] = into[key] + value if key in into else value
