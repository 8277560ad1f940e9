"""Totals per unit of an experiment: the input of every analysis, one row per user, device or session.

The randomised unit is the unit of analysis. Decisions of one unit are correlated, so treating them as independent would
make intervals too narrow.
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
    """A pair of values, one per arm."""

    control: T
    treatment: T


#: Sums of the two partial-sum columns over groups.
PARTIAL_SUMS = pl.col(_COARSE, _FINE).sum()
Values = NDArray[np.float64]
REWARD = "reward"
#: The number of decisions: an outcome of every report.
DECISIONS = "decisions"


class FixedPoint(NamedTuple):
    """Fixed-point format of a column: each value is a multiple of `coarse` plus a multiple of `fine`.

    Sums of integers do not depend on the order of rows, so totals are reproducible bit for bit.
    """

    coarse: float
    fine: float

    @classmethod
    def of(cls, largest: float, rows: int) -> FixedPoint:
        """The format for absolute values up to `largest`, such that no integer sum over `rows` values overflows."""
        bits = 62 - max(rows, 1).bit_length()
        _, exponent = math.frexp(largest)
        return cls(_power(exponent - bits), _power(exponent - 2 * bits))

    def sums(self, column: str) -> list[pl.Expr]:
        """Integer sums of the coarse and fine parts of a column, for aggregation."""
        value = pl.col(column)
        coarse = (value / self.coarse).round()
        fine = ((value - coarse * self.coarse) / self.fine).round()
        return [coarse.cast(pl.Int64).sum().alias(_COARSE), fine.cast(pl.Int64).sum().alias(_FINE)]

    def total(self) -> pl.Expr:
        """The total as a float, from the two integer sums."""
        return (pl.col(_COARSE) * self.coarse + pl.col(_FINE) * self.fine).alias("total")


def _power(exponent: int) -> float:
    """2 to the exponent, bounded from below so that its inverse is finite."""
    return math.ldexp(1.0, max(exponent, -1000))


def outcome_name(metric: str) -> str:
    """The outcome name of a metric: prefixed if it collides with a built-in outcome."""
    return f"metric {metric}" if metric in (REWARD, DECISIONS) else metric


class InvalidUnits(PotstillError, ValueError):
    """Units that cannot be analysed; the message names the row and the reason."""


@dataclass(frozen=True)
class Daily:
    """One outcome by unit and UTC day: a row for each pair with decisions, sorted by day.

    Attributes:
        unit: Row of the unit, int64[m].
        day: Days since 1970, int64[m].
        decisions: Number of decisions, float64[m].
        total: Total of the outcome, float64[m].
    """

    unit: NDArray[np.int64]
    day: NDArray[np.int64]
    decisions: Values
    total: Values


@dataclass(frozen=True)
class Before:
    """Pre-experiment data of the same units, which the arms cannot have influenced.

    Attributes:
        decisions: Number of decisions, float64[n]; 0 for units without data.
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
        treated: Whether each unit is in treatment, bool[n].
        decisions: Number of decisions, float64[n], at least 1 each.
        outcomes: Totals by name, float64[n] each; must include ``reward``.
        sent: Number of decisions that a metric was sent with, float64[n] by name of the metric.
        before: Pre-experiment data of the units; None if unknown.
        segment: Segment of each unit, strings [n]; None if not requested.
        daily: Requested outcomes by day, by name.
        in_both: Number of units in both arms, which are excluded.
        without_unit: Number of decisions without a unit, which are excluded.
        not_finite: Number of non-finite metric values, which count as not sent.
        before_start: Number of decisions in an arm before the start, which are excluded.
        period: Times of the first and last decision, in microseconds since 1970; None if unknown.
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
            raise InvalidUnits(f"treated must be an array of bool, got {treated.dtype}")
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
            raise InvalidUnits(f"row {row}: a unit must have at least one decision, got {self.decisions[row]:g}")

    @property
    def units(self) -> int:
        """Number of units."""
        return len(self.treated)

    def count(self, treated: bool) -> int:
        """Number of units in one arm."""
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
                "use the total 0 for a unit without measurements"
            )
        return column
