"""A plan: the units that an experiment needs for a stated effect, and the days that takes."""

from __future__ import annotations

import math

import msgspec

from potstill.experiments.analysis.history import History
from potstill.experiments.analysis.power import anytime_needed, detectable, units_needed

#: Lengths of experiments that are looked at beside the one asked for, in days.
LENGTHS = (7, 14, 28, 56)

#: From a shorter log no days are foretold: at first every unit is a new one, and who comes back is not known.
LEAST_DAYS = 7


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """What an experiment of a given length could see.

    Attributes:
        days: its length.
        units: that it would have.
        effect: that it would find with the stated power.
        relative: the same as a share of the mean; None if the mean is not positive.
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
        effect: to be found, in the metric's own units.
        relative: the same as a share of the mean; None if there is no mean, or none above 0.
        mean, sd: of the metric over units.
        level, power, share: as asked for.
        once: what is needed by those who look once, at the end.
        every_day: what is needed at the latest by those who look every day.
        half_by: what those who look every day need in half of all experiments, at the latest.
        explained: the share of variance that a unit's past explains; None if not known.
        with_past: what is needed once, adjusted by the past (CUPED).
        log_days: of the log that it is from; None without one. With fewer than 7, no days are stated.
        new_each_day: units; None where no days are stated.
        outlook: what experiments of other lengths could see.
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
            raise ValueError(f"--effect must look like 2% (of the mean) or 0.01 (as it is), and not be 0, got {text!r}")
        relative = stripped.endswith("%")
        return cls(abs(size) / 100 if relative else abs(size), relative)

    def of(self, mean: float | None) -> float:
        """The effect in the metric's own units."""
        if not self.relative:
            return self.size
        if mean is None or mean <= 0:
            known = "not known" if mean is None else f"{mean:g}"
            raise ValueError(
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
        effect: to be found.
        mean: of the metric; needed for relative effects.
        sd: of the metric over units.
        level: the confidence of the interval.
        power: the probability with which the effect is to be found.
        share: of units in treatment.
        explained: the share of variance that the past explains.
        history: what the log says about traffic.
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
