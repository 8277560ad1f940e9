"""Change detector: did the mean of a series change at some time, by more than chance explains?

Every split of the series is compared by the difference of its two means in standard errors. The largest one counts,
with the p-value multiplied by the number of splits, so that a series without a change raises an alarm in fewer than one
of a thousand looks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from potstill.summaries.sums import Sums

#: Probability of a false alarm.
ALARM = 0.001
#: Rows that each side of a split needs: a normal approximation of fewer rows is rough.
FEWEST = 100


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """The most likely change of a mean.

    Attributes:
        time: Start of the first cell after it, in microseconds since 1970, UTC.
        before: The mean before it.
        after: The mean after it.
        p: p-value, corrected for the number of splits.
        alarm: Whether chance does not explain it.
    """

    time: int
    before: float
    after: float
    p: float
    alarm: bool


def find_change(series: Sequence[tuple[int, Sums]]) -> Change | None:
    """The most likely change of a series of times and sums, oldest first; None if there are too few rows."""
    total = sum((sums for _, sums in series), Sums())
    before, best, found, splits = Sums(), 0.0, None, 0
    for place in range(1, len(series)):
        before = before + series[place - 1][1]
        after = Sums(total.n - before.n, total.total - before.total, total.squares - before.squares)
        if before.n < FEWEST or after.n < FEWEST:
            continue
        splits += 1
        z = _distance(before, after)
        if found is None or z > best:
            best, found = z, (series[place][0], before, after)
    if found is None:
        return None
    time, one, other = found
    p = min(math.erfc(best / math.sqrt(2)) * splits, 1.0)
    return Change(time=time, before=one.total / one.n, after=other.total / other.n, p=p, alarm=p < ALARM)


def _distance(one: Sums, other: Sums) -> float:
    """Difference of two means in standard errors; infinite if they differ and nothing varies."""
    error = math.sqrt(one.variance / one.n + other.variance / other.n)
    gap = abs(one.total / one.n - other.total / other.n)
    if error == 0.0:
        # Rounding of sums must not count as a difference.
        return math.inf if gap > 1e-9 * max(abs(one.total / one.n), 1e-300) else 0.0
    return gap / error
