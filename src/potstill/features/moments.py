"""Moments as RFC 3339 or as numbers since 1970, and where in the day, the week and the year they are.

There is no database of time zones: offsets are stated. The calendar is the Gregorian one, also before 1582.
"""

from __future__ import annotations

import math
import re
from datetime import date
from typing import Literal, NamedTuple

#: Numbers per second.
PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6}
#: Seconds since 1970 of the first moment of year 1, and of that of year 10,000, which is excluded.
FIRST_SECOND, LAST_SECOND = -62_135_596_800, 253_402_300_800
DAY, WEEK = 86_400, 604_800
#: Days in 400 years, after which the calendar repeats with its weekdays, and the day number of 2000-01-01.
CYCLE, YEAR_2000 = 146_097, 10_957
_ORDINAL_1970 = date(1970, 1, 1).toordinal()

_LEAP = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP}-02-29)"
)
_TIME = "(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:[.][0-9]+)?"
_OFFSET = "(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#: All of RFC 3339 for the years 1 to 9999, with a space allowed for the T and the time left out or not, unanchored.
RFC_3339 = f"{_DATE}(?:[Tt ]{_TIME}{_OFFSET})?"
_MATCHES = re.compile(RFC_3339).fullmatch
_IS_OFFSET = re.compile(_OFFSET).fullmatch


class Moment(NamedTuple):
    """A moment as it was written.

    Attributes:
        local: Seconds since 1970-01-01 00:00 on the clock that it was read from.
        offset: How many seconds that clock is ahead of UTC; None for a date without a time.
    """

    local: int
    offset: int | None


def read_moment(text: str) -> Moment | None:
    """A moment from RFC 3339; None if the text is not such. Fractions of a second are dropped."""
    if not _MATCHES(text):
        return None
    days = date(int(text[:4]), int(text[5:7]), int(text[8:10])).toordinal() - _ORDINAL_1970
    if len(text) == len("2026-01-31"):
        return Moment(days * DAY, None)
    seconds = int(text[11:13]) * 3600 + int(text[14:16]) * 60 + int(text[17:19])  # second 60 is the next minute's 0
    return Moment(days * DAY + seconds, read_offset(text[-1] if text[-1] in "Zz" else text[-6:]))


def read_offset(text: str) -> int | None:
    """Seconds ahead of UTC, from ``Z`` or ``+02:00``; None if the text is not such."""
    if not _IS_OFFSET(text):
        return None
    if text in "Zz":
        return 0
    seconds = int(text[1:3]) * 3600 + int(text[4:6]) * 60
    return -seconds if text[0] == "-" else seconds


class Place(NamedTuple):
    """Where a moment is in the calendar; all count from 0."""

    second: int
    weekday: int
    monthday: int
    month: int
    yearday: int
    days_of_year: Literal[365, 366]


def place_of(local: int) -> Place:
    """The place of a moment, by seconds since 1970 on its clock. Weekday 0 is Monday."""
    days, second = divmod(local, DAY)
    found = date.fromordinal(_ORDINAL_1970 + YEAR_2000 + (days - YEAR_2000) % CYCLE)
    leap = found.year % 4 == 0 and (found.year % 100 != 0 or found.year % 400 == 0)
    yearday = found.toordinal() - date(found.year, 1, 1).toordinal()
    return Place(second, found.weekday(), found.day - 1, found.month - 1, yearday, 366 if leap else 365)


def wave(step: int, steps: int) -> tuple[float, float]:
    """Sine and cosine of the turn's part step/steps.

    Of the first quarter, and turned: there all libraries agree to far less than the half of a float32, which tests
    check for every step of a day, a week and a year, and quarters are exact.
    """
    quarter, rest = divmod(4 * step, steps)
    angle = (math.pi / 2) * rest / steps
    sine, cosine = math.sin(angle), math.cos(angle)
    return ((sine, cosine), (cosine, 0.0 - sine), (0.0 - sine, 0.0 - cosine), (0.0 - cosine, sine))[quarter]
