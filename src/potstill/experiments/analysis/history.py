"""What a log says about an experiment that is to be planned: how units vary, how many come, what the past tells."""

from __future__ import annotations

import bisect

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.experiments.analysis.cuped import covariates
from potstill.experiments.analysis.outcomes import DAY, TIME, Reader
from potstill.experiments.analysis.ratio import linearised
from potstill.experiments.analysis.units import REWARD, Before

#: How far back the log is read.
DAYS = 28


class NoHistory(ValueError):
    """The log says nothing about units; the message says why."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Units of the last days of a log.

    Attributes:
        mean: of the metric.
        sd: its standard deviation over units; for a ratio, that of the values that it is the mean of (delta method).
        explained: the share of the variance in the second half of these days that the first half explains.
        seen: how many different units had been seen by the end of each day, from the first one on.
    """

    mean: float
    sd: float
    explained: float
    seen: list[int]

    @property
    def new_each_day(self) -> float:
        """New units a day in the second half: what is to be expected of further days."""
        half = len(self.seen) // 2
        return (self.seen[-1] - self.seen[half - 1]) / (len(self.seen) - half) if half else float(self.seen[-1])

    def days_for(self, units: int) -> int | None:
        """Days until that many units have been seen; None if that is more than ten years."""
        if units <= self.seen[-1]:
            return bisect.bisect_left(self.seen, units) + 1
        more = (units - self.seen[-1]) / max(self.new_each_day, 1e-9)
        return None if more > 3650 else len(self.seen) + int(np.ceil(more))

    def units_after(self, days: int) -> int:
        """How many different units are seen in that many days."""
        if days <= len(self.seen):
            return self.seen[days - 1]
        return self.seen[-1] + int((days - len(self.seen)) * self.new_each_day)


def read_history(rows: pl.LazyFrame, *, metric: str = REWARD, per_decision: bool = True, days: int = DAYS) -> History:
    """What the last days of a log say.

    Args:
        rows: observations with the columns `unit`, `time`, `id`, `reward` and perhaps `metrics`.
        metric: the outcome of interest.
        per_decision: the ratio of the outcome to decisions, rather than its mean per unit.
        days: how many.
    """
    known = rows.filter(pl.col("unit").is_not_null())
    last = known.select(TIME.max()).collect(engine="streaming").item()
    if last is None:
        raise NoHistory(
            "no observation says which unit it is of: send `unit` with your requests and run potstill update, "
            "or state --mean and --sd"
        )
    window = known.filter(last - days * DAY < TIME)
    reader = _Totals(window, metric)
    units = reader.of(window, TIME.min().alias("first"))
    first = int(units["first"].min())  # type: ignore[arg-type]
    middle = (first + last) // 2
    mean, values = _values(units, per_decision)
    arrived = np.bincount(((units["first"] - first) // DAY).to_numpy(), minlength=(last - first) // DAY + 1)
    return History(
        mean=mean,
        sd=float(values.std(ddof=1)) if len(values) > 1 else 0.0,
        explained=_explained(
            reader.of(window.filter(middle > TIME)), reader.of(window.filter(middle <= TIME)), per_decision
        ),
        seen=np.cumsum(arrived).tolist(),
    )


class _Totals:
    """Totals of one outcome by unit."""

    def __init__(self, rows: pl.LazyFrame, metric: str) -> None:
        self._reader, self._metric = Reader(rows), metric
        if metric == REWARD:
            return
        names = self._reader.metric_sums(rows, [])["name"].sort().to_list()
        if metric not in names:
            known = ", ".join([REWARD, *names])
            raise NoHistory(f"there is no metric {metric!r} in the log; the outcomes are {known}")

    def of(self, rows: pl.LazyFrame, *more: pl.Expr) -> pl.DataFrame:
        """The columns `unit`, `decisions` and `total`, and more if wanted, in order of units."""
        found = self._reader.reward_sums(rows, ["unit"], *more).sort("unit")
        if self._metric == REWARD:
            return found
        mine = self._reader.metric_sums(rows, ["unit"]).filter(pl.col("name") == self._metric)
        joined = found.drop("total").join(mine.select("unit", "total"), on="unit", how="left", maintain_order="left")
        return joined.with_columns(pl.col("total").fill_null(0.0))


def _values(units: pl.DataFrame, per_decision: bool) -> tuple[float, NDArray[np.float64]]:
    total, decisions = units["total"].to_numpy(), units["decisions"].cast(pl.Float64).to_numpy()
    values = linearised(total, decisions) if per_decision else total
    return float(values.mean()), values


def _explained(earlier: pl.DataFrame, later: pl.DataFrame, per_decision: bool) -> float:
    """The share of the variance of units in the later half that a regression on the earlier half takes away."""
    if not len(later):
        return 0.0
    joined = later.select("unit").join(earlier, on="unit", how="left", maintain_order="left")
    decisions, total = (joined[name].fill_null(0).cast(pl.Float64).to_numpy() for name in ("decisions", "total"))
    known = covariates(Before(decisions, {REWARD: total}), REWARD, per_decision=per_decision)
    _, values = _values(later, per_decision)
    if known is None or not values.var() > 0:
        return 0.0
    design = np.column_stack([np.ones(len(values)), known])
    rest = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    return max(0.0, 1 - float(rest.var() / values.var()))
