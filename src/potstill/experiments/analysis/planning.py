"""Experiment plans from a user's options and a workspace's log; options take precedence."""

from __future__ import annotations

import bisect
import math

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.errors import InvalidOption, PotstillError
from potstill.experiments.analysis.cuped import covariates
from potstill.experiments.analysis.effects import (
    linearised,
)
from potstill.experiments.analysis.metrics import Per
from potstill.experiments.analysis.power import anytime_needed, detectable, units_needed
from potstill.experiments.analysis.read import (
    DAY,
    TIME,
    Reader,
)
from potstill.experiments.analysis.units import REWARD, Before
from potstill.experiments.analysis.workspace import observations, randomised_unit
from potstill.workspace import Workspace

#: Number of days of the log that are read.
DAYS = 28


#: Experiment lengths, in days, for which the detectable effect is listed.
LENGTHS = (7, 14, 28, 56)
#: Minimum days of log for estimating durations: at first every unit is new, and the rate of returning units is unknown.
LEAST_DAYS = 7


class NoHistory(PotstillError, ValueError):
    """The log cannot inform a plan; the message gives the reason."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of units in the last days of a log.

    Attributes:
        mean: Mean of the metric.
        sd: Standard deviation over units; for a ratio, that of its linearised values (delta method).
        explained: Share of the variance in the second half of the period that the first half explains.
        units_by_day: Cumulative number of distinct units at the end of each day.
    """

    mean: float
    sd: float
    explained: float
    units_by_day: list[int]

    @property
    def new_each_day(self) -> float:
        """New units per day in the second half of the period, the estimate for further days."""
        units, half = self.units_by_day, len(self.units_by_day) // 2
        return (units[-1] - units[half - 1]) / (len(units) - half) if half else float(units[-1])

    def days_for(self, units: int) -> int | None:
        """Days until a number of distinct units is reached; None if more than ten years."""
        if units <= self.units_by_day[-1]:
            return bisect.bisect_left(self.units_by_day, units) + 1
        more = (units - self.units_by_day[-1]) / max(self.new_each_day, 1e-9)
        return None if more > 3650 else len(self.units_by_day) + int(np.ceil(more))

    def units_after(self, days: int) -> int:
        """Expected number of distinct units after a number of days."""
        if days <= len(self.units_by_day):
            return self.units_by_day[days - 1]
        return self.units_by_day[-1] + int((days - len(self.units_by_day)) * self.new_each_day)


def read_history(rows: pl.LazyFrame, *, metric: str = REWARD, per_decision: bool = True, days: int = DAYS) -> History:
    """Statistics of the last days of a log.

    Args:
        rows: Observations with the columns `unit`, `time`, `id`, `reward` and optionally `metrics`.
        metric: The outcome of interest.
        per_decision: Whether to use the ratio of the outcome to decisions instead of its mean per unit.
        days: Number of days to read.
    """
    known = rows.filter(pl.col("unit").is_not_null())
    last = known.select(TIME.max()).collect(engine="streaming").item()
    if last is None:
        raise NoHistory(
            "no observation has a unit: send `unit` with requests and run potstill update; or leave out the workspace "
            "and state --mean and --sd"
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
        units_by_day=np.cumsum(arrived).tolist(),
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
        """A table of `unit`, `decisions`, `total` and the columns of `more`, sorted by unit."""
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
    """R² of a regression of the later half's values on the earlier half's covariates."""
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


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A user's options for a plan. None means estimated from the log. See `plan` for the arguments."""

    effect: str
    mean: float | None = None
    sd: float | None = None
    explained: float | None = None
    metric: str = REWARD
    per: Per = "decision"
    power: float = 0.8
    level: float = 0.95
    share: float | None = None


def plan_for(wanted: Wanted, workspace: Workspace | None) -> Plan:
    """Plan an experiment, from a workspace's log or from options alone."""
    effect = Effect.read(wanted.effect)
    config = workspace.config.experiment if workspace else None
    history = history_of(workspace, wanted.metric, wanted.per) if workspace else None
    sd = wanted.sd if wanted.sd is not None else history.sd if history else None
    if sd is None:
        raise InvalidOption("name a workspace, or state --sd (and --mean for a relative effect)")
    if not sd > 0:
        raise InvalidOption(f"the standard deviation over units must be above 0, got {sd:g}: state another with --sd")
    return plan(
        effect,
        mean=wanted.mean if wanted.mean is not None else history.mean if history else None,
        sd=sd,
        level=wanted.level,
        power=wanted.power,
        share=wanted.share if wanted.share is not None else config.share if config else 0.5,
        explained=wanted.explained if wanted.explained is not None else history.explained if history else None,
        history=history,
    )


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """The detectable effect of an experiment of a given length.

    Attributes:
        days: Length in days.
        units: Expected number of units.
        effect: Minimum detectable effect at the stated power.
        relative: The effect relative to the mean; None if the mean is not positive.
    """

    days: int
    units: int
    effect: float
    relative: float | None


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """A required number of units, and the days to reach it; None if unknown or more than ten years."""

    units: int
    days: int | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment plan.

    Attributes:
        effect: Effect to detect, in units of the metric.
        relative: Effect relative to the mean; None if the mean is unknown or not positive.
        mean, sd: Mean and standard deviation of the metric over units.
        level, power, share: Confidence level, power and share of treatment, as requested.
        once: Sample size for one look at the planned end (fixed horizon).
        every_day: Maximum sample size when looking every day (anytime-valid).
        half_by: Sample size by which half of the experiments with daily looks have ended.
        explained: Share of the variance explained by pre-experiment data; None if unknown.
        with_past: Sample size for one look with CUPED.
        log_days: Days of log that the plan is based on; None without a log. With fewer than 7, no durations are given.
        new_each_day: New units per day; None without durations.
        outlook: Detectable effects of experiments of other lengths.
    """

    effect: float
    relative: float | None
    mean: float | None
    sd: float
    level: float
    power: float
    share: float
    once: Need
    every_day: Need
    half_by: Need
    explained: float | None
    with_past: Need | None
    log_days: int | None
    new_each_day: float | None
    outlook: list[Outlook]


class Effect(msgspec.Struct, frozen=True):
    """A requested effect: absolute, or relative to the mean."""

    size: float
    relative: bool

    @classmethod
    def read(cls, text: str) -> Effect:
        """Parse ``2%`` (relative) or ``0.01`` (absolute)."""
        stripped = text.strip()
        try:
            size = float(stripped.removesuffix("%"))
        except ValueError:
            size = math.nan
        if not math.isfinite(size) or size == 0:
            raise InvalidOption(
                f"--effect must look like 2% (of the mean) or 0.01 (absolute), and not be 0, got {text!r}"
            )
        relative = stripped.endswith("%")
        return cls(abs(size) / 100 if relative else abs(size), relative)

    def of(self, mean: float | None) -> float:
        """The effect in units of the metric."""
        if not self.relative:
            return self.size
        if mean is None or mean <= 0:
            known = "unknown" if mean is None else f"{mean:g}"
            raise InvalidOption(
                f"a relative effect needs a mean above 0, and it is {known}; state --mean, or an absolute --effect"
            )
        return self.size * mean


def plan(
    effect: Effect,
    *,
    mean: float | None,
    sd: float,
    level: float = 0.95,
    power: float = 0.8,
    share: float = 0.5,
    explained: float | None = None,
    history: History | None = None,
) -> Plan:
    """Sample sizes and durations of an experiment.

    Args:
        effect: Effect to detect.
        mean: Mean of the metric; required for relative effects.
        sd: Standard deviation of the metric over units.
        level: Confidence level of the interval.
        power: Probability of detecting the effect.
        share: Share of units in treatment.
        explained: Share of the variance explained by pre-experiment data.
        history: Traffic statistics of the log.
    """
    size = effect.of(mean)
    traffic = history if history is not None and len(history.units_by_day) >= LEAST_DAYS else None
    design = {"level": level, "power": power, "share": share}

    def need(units: int) -> Need:
        return Need(units=units, days=traffic.days_for(units) if traffic else None)

    return Plan(
        effect=size,
        relative=size / mean if mean is not None and mean > 0 else None,
        mean=mean,
        sd=sd,
        **design,
        once=need(units_needed(size, sd, **design)),
        every_day=need(anytime_needed(size, sd, **design)),
        half_by=need(anytime_needed(size, sd, level=level, power=0.5, share=share)),
        explained=explained,
        with_past=None if explained is None else need(units_needed(size, sd * math.sqrt(1 - explained), **design)),
        log_days=len(history.units_by_day) if history else None,
        new_each_day=traffic.new_each_day if traffic else None,
        outlook=[_outlook(traffic, days, mean, sd, design) for days in LENGTHS] if traffic else [],
    )


def _outlook(history: History, days: int, mean: float | None, sd: float, design: dict[str, float]) -> Outlook:
    units = max(history.units_after(days), 4)
    effect = detectable(units, sd, **design)
    return Outlook(days=days, units=units, effect=effect, relative=effect / mean if mean and mean > 0 else None)


def history_of(workspace: Workspace, metric: str, per: Per) -> History:
    """Statistics of a workspace's log for planning an experiment."""
    unit = randomised_unit(workspace, None, workspace.config.experiment)
    return read_history(observations(workspace, unit), metric=metric, per_decision=per == "decision")
