"""Read the units of an experiment from a table of observations, streamed: memory grows with units, not decisions.

Required columns: `unit`, `arm` (``NAME:control`` or ``NAME:treatment``), `time`, `id` and `reward`. Optional: `metrics`
(a list of names and values).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.experiments.analysis.units import (
    DECISIONS,
    PARTIAL_SUMS,
    REWARD,
    Before,
    Daily,
    FixedPoint,
    InvalidUnits,
    Units,
    outcome_name,
)

DAY = 86_400_000_000
#: Microseconds since 1970.
TIME = pl.col("time").dt.epoch("us")
_DAY = (TIME // DAY).alias("day")
_DECISIONS = pl.len().cast(pl.Int64).alias("decisions")


#: Days of pre-experiment data.
PAST_DAYS = 28


class Reader:
    """Exact sums over parts of a table.

    Args:
        rows: The full table; its largest values determine the fixed-point formats.

    Attributes:
        rewards: Fixed-point format of rewards.
        metrics: Fixed-point format of metrics.
        not_finite: Number of non-finite metric values, which are excluded.
    """

    def __init__(self, rows: pl.LazyFrame) -> None:
        self._has_metrics = "metrics" in rows.collect_schema()
        self.rewards, unusable = _scan_values(rows.select(value="reward"))
        nothing = FixedPoint.of(0.0, 0), 0
        self.metrics, self.not_finite = _scan_values(_metrics(rows, [])) if self._has_metrics else nothing
        if unusable:
            raise InvalidUnits(f"{unusable:,} rows have a reward that is not a finite number; fix or exclude them")

    def reward_sums(self, rows: pl.LazyFrame, by: Sequence[str], *more: pl.Expr) -> pl.DataFrame:
        """Number of decisions and fixed-point sums of rewards, by unit or by unit and day."""
        summed = rows.with_columns(_DAY).group_by(by).agg(_DECISIONS, *self.rewards.sums("reward"), *more)
        return summed.with_columns(self.rewards.total()).collect(engine="streaming")

    def metric_sums(self, rows: pl.LazyFrame, by: Sequence[str]) -> pl.DataFrame:
        """Number of decisions with each metric and its totals, by name and further groups."""
        finite = _metrics(rows, by).filter(pl.col("value").is_finite())
        summed = finite.group_by("name", *by).agg(_DECISIONS, *self.metrics.sums("value"))
        return summed.with_columns(self.metrics.total()).collect(engine="streaming")


def _metrics(rows: pl.LazyFrame, by: Sequence[str]) -> pl.LazyFrame:
    """One row per metric value."""
    if "metrics" not in rows.collect_schema():
        none = {**dict.fromkeys(by, pl.String()), "name": pl.String(), "value": pl.Float64()}
        return pl.LazyFrame(schema=none)
    some = rows.filter(pl.col("metrics").list.len() > 0).with_columns(_DAY).select(*by, "metrics")
    named = some.explode("metrics").unnest("metrics")
    return named.with_columns(pl.col("name").replace({name: outcome_name(name) for name in (REWARD, DECISIONS)}))


def _scan_values(values: pl.LazyFrame) -> tuple[FixedPoint, int]:
    """The fixed-point format of a column, and its number of non-finite values."""
    value = pl.col("value")
    finite = value.is_finite().fill_null(False)
    found = values.select(rows=pl.len(), largest=value.filter(finite).abs().max(), unusable=(~finite).sum())
    rows, largest, unusable = found.collect(engine="streaming").row(0)
    return FixedPoint.of(largest or 0.0, rows), unusable


def arms(experiment: str) -> tuple[str, str]:
    """The logged values of `arm` for control and treatment."""
    return f"{experiment}:control", f"{experiment}:treatment"


def experiments_in(rows: pl.LazyFrame) -> list[str]:
    """Names of all experiments in the table."""
    found = rows.select(pl.col("arm").drop_nulls().unique()).collect(engine="streaming")["arm"].to_list()
    return sorted({arm.rpartition(":")[0] for arm in found})


def read_units(
    rows: pl.LazyFrame,
    experiment: str,
    *,
    start: int | None = None,
    past_days: int = PAST_DAYS,
    daily: str = REWARD,
    by: str | None = None,
) -> Units:
    """Totals of each unit in an experiment.

    Args:
        rows: Observations; see the module for the columns.
        experiment: Name of the experiment.
        start: Start in microseconds since 1970; earlier decisions are excluded. Default: the first decision in an arm.
        past_days: Days of pre-experiment data, before the start or the first decision in an arm, whichever is earlier:
            decisions in an arm are not pre-experiment data.
        daily: Outcome to also return by day.
        by: Column whose value at a unit's first decision is its segment.
    """
    inside = rows.filter(pl.col("arm").is_in(arms(experiment)))
    first = first_decision(rows, experiment)
    if start is None:
        start = first or 0
    began = start if first is None else min(start, first)
    recent = rows.filter(began - past_days * DAY <= TIME)
    past = recent.filter(began > TIME, pl.col("unit").is_not_null())
    early = inside.filter(start > TIME).select(pl.len()).collect(engine="streaming").item() if began < start else 0
    return _Experiment(recent, inside.filter(start <= TIME), experiment).units(past, daily, by, early)


def first_decision(rows: pl.LazyFrame, experiment: str) -> int | None:
    """Time of the first decision of an experiment, in microseconds since 1970; None without decisions."""
    inside = rows.filter(pl.col("arm").is_in(arms(experiment)))
    first: int | None = inside.select(TIME.min()).collect(engine="streaming").item()
    return first


class _Experiment:
    """The units of an experiment and their rewards by day, from one pass over its decisions."""

    def __init__(self, rows: pl.LazyFrame, inside: pl.LazyFrame, experiment: str) -> None:
        self._reader, self._inside = Reader(rows), inside
        treated = (pl.col("arm") == arms(experiment)[1]).sum().cast(pl.Int64).alias("treated")
        self._days = self._reader.reward_sums(
            inside, ["unit", "day"], treated, TIME.min().alias("first"), TIME.max().alias("last")
        )
        sums = pl.col("decisions", "treated").sum()
        found = self._days.group_by("unit").agg(sums, PARTIAL_SUMS, pl.col("first").min())
        known = found.filter(pl.col("unit").is_not_null())
        alone = known.filter((pl.col("treated") == 0) | (pl.col("treated") == pl.col("decisions")))
        self._units = alone.with_columns(self._reader.rewards.total()).sort("unit").with_row_index("index")
        self._in_both = len(known) - len(alone)
        self._without_unit = int(found.filter(pl.col("unit").is_null())["decisions"].sum())

    def units(self, past: pl.LazyFrame, daily: str, by: str | None, before_start: int) -> Units:
        metrics = self._reader.metric_sums(self._inside, ["unit"])
        outcomes = {REWARD: self._column(self._units, "total"), **self._named(metrics, "total")}
        return Units(
            treated=(self._units["treated"] > 0).to_numpy(),
            decisions=self._column(self._units, "decisions"),
            outcomes=outcomes,
            sent=self._named(metrics, "decisions"),
            before=self._before(past),
            segment=None if by is None else self._segment(by),
            daily={daily: self._daily(daily)} if daily in outcomes else {},
            in_both=self._in_both,
            without_unit=self._without_unit,
            not_finite=self._reader.not_finite,
            before_start=before_start,
            period=self._period(),
        )

    def _period(self) -> tuple[int, int] | None:
        first, last = self._days.select(pl.col("first").min(), pl.col("last").max()).row(0)
        return None if first is None else (first, last)

    def _before(self, past: pl.LazyFrame) -> Before:
        rewards = self._reader.reward_sums(past, ["unit"])
        named = self._named(self._reader.metric_sums(past, ["unit"]), "total")
        return Before(self._column(rewards, "decisions"), {REWARD: self._column(rewards, "total"), **named})

    def _daily(self, outcome: str) -> Daily:
        """One outcome by day; all decisions count, including those without the metric."""
        days = self._days.join(self._units.select("unit", "index"), on="unit").sort("day", "index")
        if outcome != REWARD:
            mine = self._reader.metric_sums(self._inside, ["unit", "day"]).filter(pl.col("name") == outcome)
            totals = mine.select("unit", "day", "total")
            days = days.drop("total").join(totals, on=["unit", "day"], how="left", maintain_order="left")
        return Daily(
            unit=days["index"].cast(pl.Int64).to_numpy(),
            day=days["day"].cast(pl.Int64).to_numpy(),
            decisions=days["decisions"].cast(pl.Float64).to_numpy(),
            total=days["total"].fill_null(0.0).to_numpy(),
        )

    def _segment(self, column: str) -> NDArray[Any]:
        """The value of a column at each unit's first decision; ties in time are broken by the smallest id."""
        firsts = self._units.lazy().select("index", "unit", "first")
        at_first = self._inside.with_columns(first=TIME).join(firsts, on=["unit", "first"])
        values = at_first.select("index", "id", value=pl.col(column)).collect(engine="streaming")
        return values.sort("index", "id").unique("index", keep="first", maintain_order=True)["value"].to_numpy()

    def _named(self, metrics: pl.DataFrame, column: str) -> dict[str, NDArray[np.float64]]:
        """One column per metric, by name."""
        parts = metrics.sort("name", "unit").partition_by("name", as_dict=True, maintain_order=True)
        return {str(name): self._column(part, column) for (name,), part in parts.items()}

    def _column(self, found: pl.DataFrame, column: str) -> NDArray[np.float64]:
        """One number per unit; 0 for units that are not in the table."""
        joined = self._units.select("unit").join(
            found.select("unit", pl.col(column).cast(pl.Float64)), on="unit", how="left", maintain_order="left"
        )
        return joined[column].fill_null(0.0).to_numpy()
