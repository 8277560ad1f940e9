"""A plan from what a user states and what a workspace's log says; what is stated counts more."""

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

#: How far back the log is read.
DAYS = 28


#: Lengths of experiments that are looked at beside the one asked for, in days.
LENGTHS = (7, 14, 28, 56)
#: From a shorter log no days are foretold: at first every unit is a new one, and who comes back is not known.
LEAST_DAYS = 7


class NoHistory(PotstillError, ValueError):
    """The log says nothing about units; the message says why."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Units of the last days of a log.

    Attributes:
        mean: Mean of the metric.
        sd: Its standard deviation over units; for a ratio, that of the values that it is the mean of (delta method).
        explained: The share of the variance in the second half of these days that the first half explains.
        seen: How many different units had been seen by the end of each day, from the first one on.
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
        rows: Observations with the columns `unit`, `time`, `id`, `reward` and perhaps `metrics`.
        metric: The outcome of interest.
        per_decision: The ratio of the outcome to decisions, rather than its mean per unit.
        days: How many.
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


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a user states; None for what the log is to say. See `plan` for the rest."""

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
    """A plan, for a workspace or from numbers alone."""
    effect = Effect.read(wanted.effect)
    config = workspace.config.experiment if workspace else None
    history = history_of(workspace, wanted.metric, wanted.per) if workspace else None
    sd = wanted.sd if wanted.sd is not None else history.sd if history else None
    if sd is None:
        raise InvalidOption("name a workspace, or state --sd (and --mean for an effect in per cent)")
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
    """What an experiment of a given length could see.

    Attributes:
        days: Its length.
        units: Units that it would have.
        effect: Effect that it would find with the stated power.
        relative: The same as a share of the mean; None if the mean is not positive.
    """

    days: int
    units: int
    effect: float
    relative: float | None


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """Units, and the days until there are as many; None if that is not known, or never."""

    units: int
    days: int | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan.

    Attributes:
        effect: Effect to be found, in the metric's own units.
        relative: The same as a share of the mean; None if there is no mean, or none above 0.
        mean, sd: of the metric over units.
        level, power, share: as asked for.
        once: What is needed by those who look once, at the end.
        every_day: What is needed at the latest by those who look every day.
        half_by: What those who look every day need in half of all experiments, at the latest.
        explained: The share of variance that a unit's past explains; None if not known.
        with_past: What is needed once, adjusted by the past (CUPED).
        log_days: Log days of the log that it is from; None without one. With fewer than 7, no days are stated.
        new_each_day: Units; None where no days are stated.
        outlook: What experiments of other lengths could see.
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
    """An effect as it was asked for: a number, or a share of the mean."""

    size: float
    relative: bool

    @classmethod
    def read(cls, text: str) -> Effect:
        """From ``2%``, which is relative, or ``0.01``, which is not."""
        stripped = text.strip()
        try:
            size = float(stripped.removesuffix("%"))
        except ValueError:
            size = math.nan
        if not math.isfinite(size) or size == 0:
            raise InvalidOption(
                f"--effect must look like 2% (of the mean) or 0.01 (as it is), and not be 0, got {text!r}"
            )
        relative = stripped.endswith("%")
        return cls(abs(size) / 100 if relative else abs(size), relative)

    def of(self, mean: float | None) -> float:
        """The effect in the metric's own units."""
        if not self.relative:
            return self.size
        if mean is None or mean <= 0:
            known = "not known" if mean is None else f"{mean:g}"
            raise InvalidOption(
                f"a relative effect needs a mean above 0, and it is {known}; state --mean, or --effect 0.01"
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
    """What an experiment needs.

    Args:
        effect: Effect to be found.
        mean: Mean of the metric; needed for relative effects.
        sd: Standard deviation of the metric over units.
        level: The confidence of the interval.
        power: The probability with which the effect is to be found.
        share: Share of units in treatment.
        explained: The share of variance that the past explains.
        history: What the log says about traffic.
    """
    size = effect.of(mean)
    traffic = history if history is not None and len(history.seen) >= LEAST_DAYS else None
    asked = {"level": level, "power": power, "share": share}

    def need(units: int) -> Need:
        return Need(units=units, days=traffic.days_for(units) if traffic else None)

    return Plan(
        effect=size,
        relative=size / mean if mean is not None and mean > 0 else None,
        mean=mean,
        sd=sd,
        **asked,
        once=need(units_needed(size, sd, **asked)),
        every_day=need(anytime_needed(size, sd, **asked)),
        half_by=need(anytime_needed(size, sd, level=level, power=0.5, share=share)),
        explained=explained,
        with_past=None if explained is None else need(units_needed(size, sd * math.sqrt(1 - explained), **asked)),
        log_days=len(history.seen) if history else None,
        new_each_day=traffic.new_each_day if traffic else None,
        outlook=[_outlook(traffic, days, mean, sd, asked) for days in LENGTHS] if traffic else [],
    )


def _outlook(history: History, days: int, mean: float | None, sd: float, asked: dict[str, float]) -> Outlook:
    units = max(history.units_after(days), 4)
    effect = detectable(units, sd, **asked)
    return Outlook(days=days, units=units, effect=effect, relative=effect / mean if mean and mean > 0 else None)


def history_of(workspace: Workspace, metric: str, per: Per) -> History:
    """What a workspace's log says about an experiment that is to be planned."""
    unit = randomised_unit(workspace, None, workspace.config.experiment)
    return read_history(observations(workspace, unit), metric=metric, per_decision=per == "decision")
