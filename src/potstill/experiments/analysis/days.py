"""The effect as it stood at the end of each day, with the interval for those who look every day."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.experiments.analysis.effects import Effect, effect
from potstill.experiments.analysis.measured import LEAST_ANYTIME, Measured
from potstill.experiments.analysis.units import Daily


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """What was known at the end of a UTC day.

    Attributes:
        day: such as ``2026-11-16``.
        measured: the effect over everything up to then.
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
    """The effect on an outcome at the end of each day from that on which there are enough units.

    Args:
        treated: whether a unit is in treatment, bool[n].
        daily: the outcome by unit and day.
        past: covariates to adjust by, float64[n, k].
        per_decision: the ratio of the outcome to decisions, rather than its mean per unit.
        level: the confidence, for the anytime intervals over all days together.
        planned: units at which those are narrowest.
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
        seen = decisions > 0
        if np.count_nonzero(seen) >= LEAST_ANYTIME:
            size = decisions[seen] if per_decision else None
            yield day, effect(treated[seen], total[seen], size, None if past is None else past[seen])
