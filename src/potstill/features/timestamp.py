"""Moments: where in the day, the week and the year they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidContext, InvalidProblem, check_distinct, shown
from potstill.features.contract import REAL, FeatureType, Float32, Holds, KernelFeature, Writer, with_flag
from potstill.features.moments import (
    CYCLE,
    DAY,
    FIRST_SECOND,
    LAST_SECOND,
    PER_SECOND,
    WEEK,
    YEAR_2000,
    Place,
    place_of,
    read_moment,
    read_offset,
    wave,
)

Part = Literal["day", "week", "year", "hour", "weekday", "monthday", "month"]
Unit = Literal["s", "ms", "us"]
Integers = NDArray[np.int64]
#: The offset by which the clock of each string holds.
OWN = "own"
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
#: Columns of each part: sine and cosine, or one for each value.
_COLUMNS: dict[str, tuple[str, ...]] = {
    "day": ("day sine", "day cosine"),
    "week": ("week sine", "week cosine"),
    "year": ("year sine", "year cosine"),
    "hour": tuple(f"hour={hour}" for hour in range(24)),
    "weekday": tuple(f"weekday={day}" for day in _WEEKDAYS),
    "monthday": tuple(f"monthday={day}" for day in range(1, 32)),
    "month": tuple(f"month={month}" for month in _MONTHS),
}
_CYCLES: dict[str, Callable[[Place], tuple[float, float]]] = {
    "day": lambda place: wave(place.second, DAY),
    "week": lambda place: wave(place.weekday * DAY + place.second, WEEK),
    "year": lambda place: wave(place.yearday, place.days_of_year),
}
_ONE_HOT: dict[str, Callable[[Place], int]] = {
    "hour": lambda place: place.second // 3600,
    "weekday": lambda place: place.weekday,
    "monthday": lambda place: place.monthday,
    "month": lambda place: place.month,
}
_DEFAULT: tuple[Part, ...] = ("day", "weekday")
_MUST_BE = "a time as RFC 3339, such as 2026-01-31T12:00:00Z, or a date"


class Timestamp(FeatureType, frozen=True, tag="timestamp"):
    """A moment, by its parts: where in the day, the week and the year it is.

    ``"day"``, ``"week"`` and ``"year"`` are two columns each, sine and cosine of the part of it that has passed, so
    that the end is next to the beginning. ``"hour"``, ``"weekday"``, ``"monthday"`` and ``"month"`` are one-hot.

    Args:
        name: Key in the context.
        parts: Parts, in the order of their columns.
        unit: Values are numbers of this unit since 1970 UTC; if left out, they are strings of RFC 3339.
        offset: Clock that the parts are read from: ``"Z"`` is UTC, ``"+02:00"`` two hours ahead of it, and ``"own"``
            the offset that each string states. A date without a time is midnight on that clock.
        missing: What an absent or ``None`` value means: ``"error"``; or ``"flag"``, 0 in all columns and 1 in a column
            of its own.
    """

    name: str
    parts: Sequence[Part] = _DEFAULT
    unit: Unit | None = None
    offset: str = "Z"
    missing: Literal["error", "flag"] = "error"

    def __post_init__(self) -> None:
        self.check_common("error", "flag")
        known = ", ".join(get_args(Part))
        if isinstance(self.parts, str) or not isinstance(self.parts, (list, tuple)) or not self.parts:
            raise InvalidProblem(f"feature {self.name!r}: parts must be a list of {known}, got {shown(self.parts)}")
        for part in self.parts:
            if part not in get_args(Part):
                raise InvalidProblem(f"feature {self.name!r}: a part must be one of {known}, got {shown(part)}")
        check_distinct(self.parts, f"feature {self.name!r}: part")
        parts = tuple(self.parts)  # the default as the same object, so that it is left out of the JSON
        msgspec.structs.force_setattr(self, "parts", _DEFAULT if parts == _DEFAULT else parts)
        if self.unit not in (None, *PER_SECOND):
            raise InvalidProblem(
                f"feature {self.name!r}: unit must be 's', 'ms' or 'us', or left out for strings, got "
                f"{shown(self.unit)}"
            )
        self._check_offset()

    def _check_offset(self) -> None:
        if self.offset == OWN and self.unit is not None:
            raise InvalidProblem(f"feature {self.name!r}: numbers have no offset of their own; state one as '+02:00'")
        if self.offset != OWN and (not isinstance(self.offset, str) or read_offset(self.offset) is None):
            raise InvalidProblem(
                f"feature {self.name!r}: offset must be 'Z', a number of hours and minutes such as '+02:00', or "
                f"'own', got {shown(self.offset)}; names of time zones need a database that not every runtime has"
            )

    @property
    def holds(self) -> Holds:
        """What a value is, in JSON and in the lake."""
        return "string" if self.unit is None else "number"

    @property
    def moment(self) -> Literal["text", "s", "ms", "us"]:
        """How a value states a time."""
        return self.unit or "text"

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        columns = tuple(f"{self.name} {column}" for part in self.parts for column in _COLUMNS[part])
        return with_flag(columns, self.name, self.missing)

    @property
    def example(self) -> Any:
        """A value for examples."""
        return "2026-01-31T12:00:00Z" if self.unit is None else 1_769_860_800.0 * PER_SECOND[self.unit]

    @property
    def blank(self) -> None:
        """There is no value that is encoded as zeros."""
        return

    @property
    def must_be(self) -> str:
        """What a value must be, for messages."""
        return _MUST_BE if self.unit is None else f"a number of {self.unit} since 1970, of the years 1 to 9999"

    @property
    def in_words(self) -> str:
        """Description of the values, for the documentation of an API."""
        if self.unit is None:
            return "A time as RFC 3339, or a date."
        return f"A time as a number of {self.unit} since 1970, UTC."

    @property
    def kernel(self) -> KernelFeature:
        """The feature as the C kernel has it."""
        return KernelFeature(
            "timestamp",
            self.missing_in_kernel,
            size=self._size,
            parts=tuple(self.parts),
            offset=self._offset,
            own=self.offset == OWN,
            per_second=0.0 if self.unit is None else PER_SECOND[self.unit],
        )

    def writer(self, at: int) -> Writer:
        """Encode one value at columns ``at`` to ``at + width`` of a row of zeros."""

        def write(value: object, row: list[float]) -> None:
            if value is not None:
                self._write(place_of(self._local(value)), row, at)
            elif self.missing == "error":
                raise self.missing_error()
            else:
                row[at + self._size] = 1.0

        return write

    def _write(self, place: Place, row: list[float], at: int) -> None:
        for part in self.parts:
            if part in _CYCLES:
                row[at : at + 2] = _CYCLES[part](place)
            else:
                row[at + _ONE_HOT[part](place)] = 1.0
            at += len(_COLUMNS[part])

    def _local(self, value: object) -> int:
        """Seconds since 1970 on the clock that the parts are read from."""
        return self._local_of_text(value) if self.unit is None else self._local_of_number(value, self.unit)

    def _local_of_text(self, value: object) -> int:
        if not isinstance(value, str):
            raise InvalidContext(f"feature {self.name!r}: expected a string, got {shown(value)}")
        moment = read_moment(value)
        if moment is None:
            raise InvalidContext(
                f"feature {self.name!r}: expected {_MUST_BE}, got {shown(value)}; a time needs seconds, and Z or an "
                "offset such as +02:00"
            )
        own = moment.offset is None or self.offset == OWN
        return moment.local if own else moment.local + self._offset - (moment.offset or 0)

    def _local_of_number(self, value: object, unit: Unit) -> int:
        if isinstance(value, bool) or not isinstance(value, REAL):
            raise InvalidContext(f"feature {self.name!r}: expected a number, got {shown(value)}")
        try:
            seconds = float(value) / PER_SECOND[unit]
        except OverflowError:
            seconds = math.inf
        if not math.isfinite(seconds):
            raise self.not_finite(value)
        if not FIRST_SECOND <= seconds < LAST_SECOND:
            raise self._out_of_range(value)
        return math.floor(seconds) + self._offset

    def _out_of_range(self, value: object) -> InvalidContext:
        return InvalidContext(
            f"feature {self.name!r}: expected {self.must_be}, got {shown(value)}; state the unit of your numbers, "
            "'s', 'ms' or 'us', in the problem"
        )

    def encode_column(self, column: NDArray[Any]) -> Float32 | None:
        """Encode an array to float32[N, width]; None if it has to go value by value."""
        if column.dtype.kind == "O" or (self.unit is None and column.dtype.kind == "U"):
            values = enumerate(column.tolist())
            known = [None if value is None and self.optional else self._at(row, value) for row, value in values]
            return self._block(np.array([value or 0 for value in known], np.int64), [value is None for value in known])
        if self.unit is None or column.dtype.kind not in "iuf":
            return None
        seconds = column.astype(np.float64) / PER_SECOND[self.unit]
        bad = np.flatnonzero(~((seconds >= FIRST_SECOND) & (seconds < LAST_SECOND)))
        if bad.size:
            self._at(int(bad[0]), column[bad[0]])
        return self._block(np.floor(seconds).astype(np.int64) + self._offset, [False] * len(column))

    def _at(self, row: int, value: object) -> int:
        try:
            return self._local(value)
        except InvalidContext as error:
            raise InvalidContext(f"row {row}: {error}") from None

    def _block(self, local: Integers, missing: list[bool]) -> Float32:
        block = np.zeros((len(local), len(self.labels)), np.float32)
        places, at = _places(local), 0
        for part in self.parts:
            if part in _CYCLES:
                block[:, at : at + 2] = _waves(*_steps(part, places))
            else:
                block[np.arange(len(local)), at + _ONE_HOT[part](places)] = 1.0
            at += len(_COLUMNS[part])
        if any(missing):
            block[missing] = 0.0
            block[missing, -1] = 1.0
        return block

    def draw(self, rng: np.random.Generator, count: int) -> Float32:
        """Moments of 2000 to 2399, float32[count, width], for contexts before any was observed."""
        local = rng.integers(YEAR_2000 * DAY, (YEAR_2000 + CYCLE) * DAY, size=count)
        return self._block(local, [False] * count)

    @property
    def _size(self) -> int:
        return sum(len(_COLUMNS[part]) for part in self.parts)

    @property
    def _offset(self) -> int:
        return read_offset(self.offset) or 0


def _places(local: Integers) -> Any:
    """`place_of` for an array: a `Place` of arrays."""
    days, second = np.divmod(local, DAY)
    dates = (YEAR_2000 + (days - YEAR_2000) % CYCLE).astype("datetime64[D]")
    months, years = dates.astype("datetime64[M]"), dates.astype("datetime64[Y]")
    since = {unit: start.astype("datetime64[D]") for unit, start in (("M", months), ("Y", years))}
    length = ((years + 1).astype("datetime64[D]") - since["Y"]).astype(np.int64)
    monthday, yearday = ((dates - since[unit]).astype(np.int64) for unit in "MY")
    return Place(second, (days + 3) % 7, monthday, months.astype(np.int64) % 12, yearday, length)  # type: ignore[arg-type]


def _steps(part: str, places: Any) -> tuple[Integers, Any]:
    steps = {
        "day": (places.second, DAY),
        "week": (places.weekday * DAY + places.second, WEEK),
        "year": (places.yearday, places.days_of_year),
    }
    return steps[part]


def _waves(step: Integers, steps: Any) -> NDArray[np.float64]:
    """`wave` for arrays, float64[N, 2]."""
    quarter, rest = np.divmod(4 * step, steps)
    angle = (math.pi / 2) * rest / steps
    sine, cosine = np.sin(angle), np.cos(angle)
    turned = [(sine, cosine), (cosine, 0.0 - sine), (0.0 - sine, 0.0 - cosine), (0.0 - cosine, sine)]
    return np.stack([np.choose(quarter, [pair[i] for pair in turned]) for i in range(2)], axis=1)
