"""The units of an experiment from a table of observations, a part at a time: memory is for units, not for decisions.

A table needs these columns: `unit`, `arm` (``NAME:control`` or ``NAME:treatment``), `time`, `id`,
`reward`, and, if there are any, `metrics` (a list of names and values).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.experiments.analysis.units import (
    AGAIN,
    DECISIONS,
    REWARD,
    Before,
    Daily,
    Fixed,
    InvalidUnits,
    Units,
    called,
)

DAY = 86_400_000_000
#: Microseconds since 1970.
TIME = pl.col("time").dt.epoch("us")
_DAY = (TIME // DAY).alias("day")
_DECISIONS = pl.len().cast(pl.Int64).alias("decisions")


#: How far back from the start of an experiment a unit's past is looked for, in days.
PAST_DAYS = 28


class Reader:
    """Reads parts of a table.

    Args:
        rows: All that will be read from: the largest values in it say how to count.

    Attributes:
        rewards: How rewards are counted.
        metrics: How metrics are.
        not_finite: Values of metrics that are no finite numbers; they are left out.
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
        """Number of decisions with each metric, and its totals, by name and further groups."""
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


def arms(experiment: str) -> tuple[str, str]:
    """What is logged as the arm of control and of treatment."""
    return f"{experiment}:control", f"{experiment}:treatment"


def experiments_in(rows: pl.LazyFrame) -> list[str]:
    """The names of all experiments that decisions were taken in."""
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
        rows: Observations; see above for the columns.
        experiment: Its name.
        start: When it began, in microseconds since 1970; its first decision if left out. What was before is left out.
        past_days: How far back the past goes, from the start or from the first decision in an arm, whichever is
            earlier: what units did in an arm is no past to adjust by.
        daily: The outcome that is wanted by day as well.
        by: A column whose value at a unit's first decision is its segment.
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
    """When the first decision of an experiment was taken, in microseconds since 1970; None if there is none."""
    inside = rows.filter(pl.col("arm").is_in(arms(experiment)))
    first: int | None = inside.select(TIME.min()).collect(engine="streaming").item()
    return first


class _Experiment:
    """What one pass over the decisions of an experiment finds: its units, and their rewards by day."""

    def __init__(self, rows: pl.LazyFrame, inside: pl.LazyFrame, experiment: str) -> None:
        self._reader, self._inside = Reader(rows), inside
        treated = (pl.col("arm") == arms(experiment)[1]).sum().cast(pl.Int64).alias("treated")
        self._days = self._reader.reward_sums(
            inside, ["unit", "day"], treated, TIME.min().alias("first"), TIME.max().alias("last")
        )
        sums = pl.col("decisions", "treated").sum()
        found = self._days.group_by("unit").agg(sums, AGAIN, pl.col("first").min())
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
        """One outcome by day; all decisions count, also those that it did not come with."""
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
        """The value of a column at each unit's first decision; that of the smallest id, should there be several."""
        firsts = self._units.lazy().select("index", "unit", "first")
        at_first = self._inside.with_columns(first=TIME).join(firsts, on=["unit", "first"])
        values = at_first.select("index", "id", value=pl.col(column)).collect(engine="streaming")
        return values.sort("index", "id").unique("index", keep="first", maintain_order=True)["value"].to_numpy()

    def _named(self, metrics: pl.DataFrame, column: str) -> dict[str, NDArray[np.float64]]:
        """A column for each metric, by name."""
        parts = metrics.sort("name", "unit").partition_by("name", as_dict=True, maintain_order=True)
        return {str(name): self._column(part, column) for (name,), part in parts.items()}

    def _column(self, found: pl.DataFrame, column: str) -> NDArray[np.float64]:
        """One number for each unit; 0 for those that were not found."""
        joined = self._units.select("unit").join(
            found.select("unit", pl.col(column).cast(pl.Float64)), on="unit", how="left", maintain_order="left"
        )
        return joined[column].fill_null(0.0).to_numpy()
