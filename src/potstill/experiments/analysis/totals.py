"""Sums of floating-point columns that do not depend on the order of rows: one file or many, one thread or many.

Each value is split into two whole numbers of fixed units, which add up exactly; together they keep 70 bits or more
below the largest value of the column, and a double has 53.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import polars as pl

_COARSE, _FINE = "coarse", "fine"


class Fixed(NamedTuple):
    """The two units that values of a column are counted in."""

    coarse: float
    fine: float

    @classmethod
    def of(cls, largest: float, rows: int) -> Fixed:
        """For values up to `largest` either way, so many of them that no sum of whole numbers overflows."""
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


#: The same two columns, added up over groups of groups.
AGAIN = pl.col(_COARSE, _FINE).sum()


def _power(exponent: int) -> float:
    """Two to the exponent, but not so little that its inverse is no number."""
    return math.ldexp(1.0, max(exponent, -1000))
