"""What each unit of an experiment did: the table that every analysis starts from, one row per user, device or session.

The unit that was randomised is the unit that is analysed. Decisions of one unit are alike, so counting them as if they
were independent would make intervals too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.errors import PotstillError

_COARSE, _FINE = "coarse", "fine"

T = TypeVar("T")


class Arms(msgspec.Struct, Generic[T], frozen=True):
    """What control has, and what treatment has."""

    control: T
    treatment: T


#: The same two columns, added up over groups of groups.
AGAIN = pl.col(_COARSE, _FINE).sum()
Values = NDArray[np.float64]
REWARD = "reward"
#: How often units came: an outcome that every report has.
DECISIONS = "decisions"


class Fixed(NamedTuple):
    """The two units that values of a column are counted in."""

    coarse: float
    fine: float

    @classmethod
    def of(cls, largest: float, rows: int) -> Fixed:
        """For values up to `largest` in size, such that no sum of `rows` whole numbers overflows."""
        bits = 62 - max(rows, 1).bit_length()
        _, exponent = math.frexp(largest)
        return cls(_power(exponent - bits), _power(exponent - 2 * bits))

    def sums(self, column: str) -> list[pl.Expr]:
        """Two columns of whole numbers, added up over groups."""
        value = pl.col(column)
        coarse = (value / self.coarse).round()
        fine = ((value - coarse * self.coarse) / self.fine).round()
        return [coarse.cast(pl.Int64).sum().alias(_COARSE), fine.cast(pl.Int64).sum().alias(_FINE)]

    def total(self) -> pl.Expr:
        """The sum as a number again."""
        return (pl.col(_COARSE) * self.coarse + pl.col(_FINE) * self.fine).alias("total")


def _power(exponent: int) -> float:
    """Two to the exponent, but not so little that its inverse is no number."""
    return math.ldexp(1.0, max(exponent, -1000))


def called(metric: str) -> str:
    """What a metric that was sent is called: told apart from an outcome that is always there."""
    return f"metric {metric}" if metric in (REWARD, DECISIONS) else metric


class InvalidUnits(PotstillError, ValueError):
    """Units that cannot be analysed; the message says which and why."""


@dataclass(frozen=True)
class Daily:
    """One outcome by unit and UTC day, a row for each pair that has decisions, in order of days.

    Attributes:
        unit: The row of the unit, int64[m].
        day: Days since 1970, int64[m].
        decisions: How many, float64[m].
        total: Total of the outcome, float64[m].
    """

    unit: NDArray[np.int64]
    day: NDArray[np.int64]
    decisions: Values
    total: Values


@dataclass(frozen=True)
class Before:
    """The same units before the experiment began; nothing that either arm did can have changed it.

    Attributes:
        decisions: How many, float64[n]; 0 for units that were not seen.
        outcomes: Totals by name, float64[n] each.
    """

    decisions: Values
    outcomes: Mapping[str, Values]


@dataclass(frozen=True)
class Units:
    """Totals of each unit over the experiment.

    >>> Units(treated=[False, True], decisions=[3, 1], outcomes={"reward": [1.5, 1.0]}).units
    2

    Attributes:
        treated: Whether the unit is in treatment, bool[n].
        decisions: How many, float64[n], at least one each.
        outcomes: Totals by name, float64[n] each; ``reward`` is one of them.
        sent: Sent for metrics that do not come with every decision, with how many they came, float64[n] by name.
        before: The same units before the experiment; None if that is not known.
        segment: The segment of each unit, strings [n]; None if not asked for.
        daily: Outcomes by day, by name; those that were asked for.
        in_both: Units that were seen in both arms, and are left out.
        without_unit: Decisions of the experiment that do not say whose they are, and are left out.
        not_finite: Values of metrics that are no finite numbers, and count as not sent.
        before_start: Decisions in an arm that were taken before the start, and are left out.
        period: When the first and the last decision was taken, in microseconds since 1970; None if that is not known.
    """

    treated: NDArray[np.bool_]
    decisions: Values
    outcomes: Mapping[str, Values]
    sent: Mapping[str, Values] = field(default_factory=dict)
    before: Before | None = None
    segment: NDArray[Any] | None = None
    daily: Mapping[str, Daily] = field(default_factory=dict)
    in_both: int = 0
    without_unit: int = 0
    not_finite: int = 0
    before_start: int = 0
    period: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        treated = np.asarray(self.treated)
        if treated.dtype != np.bool_:
            raise InvalidUnits(f"treated must say True or False for each unit, got an array of {treated.dtype}")
        checked: dict[str, Any] = {
            "treated": treated,
            "decisions": self._column("decisions", self.decisions, len(treated)),
            "outcomes": {name: self._column(name, values, len(treated)) for name, values in self.outcomes.items()},
        }
        if self.before is not None:
            past = {
                name: self._column(f"{name} before", values, len(treated))
                for name, values in self.before.outcomes.items()
            }
            checked["before"] = Before(self._column("decisions before", self.before.decisions, len(treated)), past)
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if REWARD not in self.outcomes:
            raise InvalidUnits(f"outcomes must have {REWARD!r}, got {', '.join(self.outcomes) or 'none'}")
        if np.any(self.decisions <= 0):
            row = int(np.flatnonzero(self.decisions <= 0)[0])
            raise InvalidUnits(f"row {row}: a unit has at least one decision, got {self.decisions[row]:g}")

    @property
    def units(self) -> int:
        """How many."""
        return len(self.treated)

    def count(self, treated: bool) -> int:
        """How many units one arm has."""
        return int(np.count_nonzero(self.treated == treated))

    @staticmethod
    def _column(name: str, values: Any, rows: int) -> Values:
        column = np.asarray(values, np.float64)
        if column.shape != (rows,):
            raise InvalidUnits(f"{name} must have one number for each of {rows} units, got shape {column.shape}")
        wrong = np.flatnonzero(~np.isfinite(column))
        if wrong.size:
            more = f" (and {wrong.size - 1:,} more rows)" if wrong.size > 1 else ""
            raise InvalidUnits(
                f"row {wrong[0]}: {name} must be a finite number, got {column[wrong[0]]}{more}; "
                "a unit for which nothing was measured has the total 0"
            )
        return column
