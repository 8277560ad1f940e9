"""Totals of outcomes from a table of observations, streamed; sums are exact, so that the order of rows is nothing."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from potstill.experiments.analysis.totals import Fixed
from potstill.experiments.analysis.units import DECISIONS, REWARD, InvalidUnits, called

DAY = 86_400_000_000
#: Microseconds since 1970.
TIME = pl.col("time").dt.epoch("us")
_DAY = (TIME // DAY).alias("day")
_DECISIONS = pl.len().cast(pl.Int64).alias("decisions")


class Reader:
    """Reads parts of a table.

    Args:
        rows: all that will be read from: the largest values in it say how to count.

    Attributes:
        rewards: how rewards are counted.
        metrics: how metrics are.
        not_finite: values of metrics that are no finite numbers; they are left out.
    """

    def __init__(self, rows: pl.LazyFrame) -> None:
        self._has_metrics = "metrics" in rows.collect_schema()
        self.rewards, unusable = _counted(rows.select(value="reward"))
        self.metrics, self.not_finite = _counted(_metrics(rows, [])) if self._has_metrics else (Fixed.of(0.0, 0), 0)
        if unusable:
            raise InvalidUnits(f"{unusable:,} rows have a reward that is no finite number; mend them or leave them out")

    def reward_sums(self, rows: pl.LazyFrame, by: Sequence[str], *more: pl.Expr) -> pl.DataFrame:
        """How many decisions, and their rewards as whole numbers, by unit or by unit and day."""
        summed = rows.with_columns(_DAY).group_by(by).agg(_DECISIONS, *self.rewards.sums("reward"), *more)
        return summed.with_columns(self.rewards.total()).collect(engine="streaming")

    def metric_sums(self, rows: pl.LazyFrame, by: Sequence[str]) -> pl.DataFrame:
        """With how many decisions metrics came, and their totals, by name and whatever else."""
        finite = _metrics(rows, by).filter(pl.col("value").is_finite())
        summed = finite.group_by("name", *by).agg(_DECISIONS, *self.metrics.sums("value"))
        return summed.with_columns(self.metrics.total()).collect(engine="streaming")


def _metrics(rows: pl.LazyFrame, by: Sequence[str]) -> pl.LazyFrame:
    """A row for each metric that came with a decision."""
    if "metrics" not in rows.collect_schema():
        none = {**dict.fromkeys(by, pl.String()), "name": pl.String(), "value": pl.Float64()}
        return pl.LazyFrame(schema=none)
    some = rows.filter(pl.col("metrics").list.len() > 0).with_columns(_DAY).select(*by, "metrics")
    named = some.explode("metrics").unnest("metrics")
    return named.with_columns(pl.col("name").replace({name: called(name) for name in (REWARD, DECISIONS)}))


def _counted(values: pl.LazyFrame) -> tuple[Fixed, int]:
    """How to count a column's values, and how many of them cannot be."""
    value = pl.col("value")
    finite = value.is_finite().fill_null(False)
    found = values.select(rows=pl.len(), largest=value.filter(finite).abs().max(), unusable=(~finite).sum())
    rows, largest, unusable = found.collect(engine="streaming").row(0)
    return Fixed.of(largest or 0.0, rows), unusable
