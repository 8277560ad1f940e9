"""Effects by segment, corrected for multiple testing, and effects by day."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.evaluate import by_value
from potstill.experiments.analysis.effects import LEAST_ANYTIME, Effect, Measured, effect, f_tail, holm
from potstill.experiments.analysis.units import Daily

#: Segments with fewer units in either arm are listed without an effect.
LEAST_UNITS = 20


Measure = Callable[[NDArray[np.bool_]], Effect | None]


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """The effect in one segment.

    Attributes:
        name: Name of the segment.
        units: Number of units in both arms.
        measured: The effect, with simultaneous intervals over all segments (Bonferroni). None with too few units.
        p: p-value of the null hypothesis of no effect in this segment, corrected for multiple testing (Holm).
    """

    name: str
    units: int
    measured: Measured | None = None
    p: float | None = None


class Segments(msgspec.Struct, frozen=True, kw_only=True):
    """Effects by segment.

    Attributes:
        by: Name of the feature.
        segments: Segments in order.
        p: p-value of equal effects in all segments (Welch's test); None if fewer than two could be measured.
        sentence: Interpretation in one sentence.
    """

    by: str
    segments: list[Segment]
    p: float | None
    sentence: str


def by_segment(by: str, values: NDArray[Any], treated: NDArray[np.bool_], measure: Measure, level: float) -> Segments:
    """Effects by the values of a feature.

    Args:
        by: Name of the feature.
        values: Value of the feature at each unit's first decision.
        treated: Whether each unit is in treatment.
        measure: Function from a mask of units, bool[n], to the effect on them.
        level: Simultaneous confidence level of all intervals.
    """
    names, codes, _ = by_value(values)
    chosen = [codes == code for code in range(len(names))]
    effects = [measure(units) if _enough(units, treated) else None for units in chosen]
    known = [one for one in effects if one is not None]
    corrected = iter(holm([one.p for one in known]))
    together = 1 - (1 - level) / max(len(known), 1)
    segments = [
        Segment(name=name, units=int(np.count_nonzero(units)))
        if one is None
        else Segment(name=name, units=one.units, measured=Measured.of(one, together), p=next(corrected))
        for name, units, one in zip(names, chosen, effects, strict=True)
    ]
    p = interaction(known)
    return Segments(by=by, segments=segments, p=p, sentence=_sentence(by, segments, p, 1 - level))


def interaction(effects: list[Effect]) -> float | None:
    """p-value of equal effects; None for fewer than two.

    Welch 1951, "On the comparison of several mean values". For two effects it is Welch's t-test of their difference.
    """
    if len(effects) < 2:
        return None
    k = len(effects)
    weights = np.array([one.error**-2 for one in effects])
    differences, df = (np.array([getattr(one, name) for one in effects]) for name in ("difference", "df"))
    shares = weights / weights.sum()
    uncertain = float(((1 - shares) ** 2 / df).sum())
    spread = float(weights @ (differences - shares @ differences) ** 2) / (k - 1)
    return f_tail(spread / (1 + 2 * (k - 2) / (k**2 - 1) * uncertain), k - 1, (k**2 - 1) / (3 * uncertain))


def _enough(units: NDArray[np.bool_], treated: NDArray[np.bool_]) -> bool:
    return bool(min(np.count_nonzero(units & treated), np.count_nonzero(units & ~treated)) >= LEAST_UNITS)


def _sentence(by: str, segments: list[Segment], p: float | None, alpha: float) -> str:
    if p is None:
        return f"Too few units to compare effects by {by}: a segment needs {LEAST_UNITS} in each arm."
    moved = [one.name for one in segments if one.p is not None and one.p < alpha]
    found = f"an effect is found in {', '.join(moved)}" if moved else "no single segment has a significant effect"
    corrected = f"Corrected for the number of segments, {found}."
    if p < alpha:
        return f"The effect depends on {by} (p = {p:.2g}). {corrected}"
    return (
        f"No evidence that the effect depends on {by} (p = {p:.2g}): differences between segments are within chance. "
        f"{corrected}"
    )


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """The cumulative effect at the end of a UTC day.

    Attributes:
        day: The day, such as ``2026-11-16``.
        measured: The effect on all data up to the end of the day.
    """

    day: str
    measured: Measured


def by_day(
    treated: NDArray[np.bool_],
    daily: Daily,
    past: NDArray[np.float64] | None,
    *,
    per_decision: bool,
    level: float,
    planned: int,
) -> list[Day]:
    """The cumulative effect on an outcome at the end of each day, from the first day with enough units.

    Args:
        treated: Whether each unit is in treatment, bool[n].
        daily: The outcome by unit and day.
        past: CUPED covariates, float64[n, k].
        per_decision: Whether to measure the ratio of the outcome to decisions instead of its mean per unit.
        level: Confidence level; simultaneous over all days for the anytime-valid intervals.
        planned: Number of units at which the anytime-valid intervals are narrowest.
    """
    return [
        Day(day=str(date(1970, 1, 1) + timedelta(days=day)), measured=Measured.of(found, level, planned))
        for day, found in _cumulative(treated, daily, past, per_decision)
        if found is not None
    ]


def _cumulative(
    treated: NDArray[np.bool_], daily: Daily, past: NDArray[np.float64] | None, per_decision: bool
) -> Iterator[tuple[int, Effect | None]]:
    decisions, total = np.zeros(len(treated)), np.zeros(len(treated))
    days, firsts = np.unique(daily.day, return_index=True)
    for day, first, last in zip(days.tolist(), firsts, [*firsts, len(daily.day)][1:], strict=True):
        who = daily.unit[first:last]  # each unit once
        decisions[who] += daily.decisions[first:last]
        total[who] += daily.total[first:last]
        active = decisions > 0
        if np.count_nonzero(active) >= LEAST_ANYTIME:
            size = decisions[active] if per_decision else None
            yield day, effect(treated[active], total[active], size, None if past is None else past[active])
