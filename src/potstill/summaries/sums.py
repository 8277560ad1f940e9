"""Sums of rewards and of weighted rewards: everything that a mean, an off-policy estimate and an interval need.

Sums add up, so that summaries of parts are summaries of the whole, and no view reads rows.
"""

from __future__ import annotations

import math

import msgspec

#: Normal quantile of 95% intervals.
Z95 = 1.959963984540054


class Sums(msgspec.Struct, frozen=True, array_like=True):
    """Number, sum and sum of squares of some values."""

    n: int = 0
    total: float = 0.0
    squares: float = 0.0

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.n + other.n, self.total + other.total, self.squares + other.squares)

    @property
    def mean(self) -> float | None:
        """The mean; None without values."""
        return self.total / self.n if self.n else None

    @property
    def variance(self) -> float:
        """The unbiased variance; 0 for fewer than two values."""
        if self.n < 2:
            return 0.0
        return max(self.squares - self.total**2 / self.n, 0.0) / (self.n - 1)

    @property
    def error(self) -> float | None:
        """The standard error of the mean; None for fewer than two values."""
        return math.sqrt(self.variance / self.n) if self.n > 1 else None


class Weighted(msgspec.Struct, frozen=True, array_like=True):
    """Sums over rows with importance weight w and reward r: of w, w², w·r, w·r², w²·r and w²·r²."""

    w: float = 0.0
    ww: float = 0.0
    wr: float = 0.0
    wrr: float = 0.0
    wwr: float = 0.0
    wwrr: float = 0.0

    def __add__(self, other: Weighted) -> Weighted:
        return Weighted(
            self.w + other.w,
            self.ww + other.ww,
            self.wr + other.wr,
            self.wrr + other.wrr,
            self.wwr + other.wwr,
            self.wwrr + other.wwrr,
        )

    @property
    def effective(self) -> float:
        """Effective number of rows, (Σw)² / Σw²."""
        return self.w**2 / self.ww if self.ww > 0 else 0.0


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A mean reward, or a difference of two, with its 95% interval by the normal approximation.

    Attributes:
        value: The estimate; None if nothing is known.
        low: Lower end of the interval; None with fewer than two rows.
        high: Upper end.
        rows: Number of rows.
        effective: Effective number of rows; for plain means the number of rows.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    rows: int = 0
    effective: float = 0.0


def mean_of(sums: Sums) -> Estimate:
    """A plain mean."""
    return _estimate(sums.mean, sums.error, sums.n, float(sums.n))


def difference(one: Sums, other: Sums) -> Estimate:
    """The mean of independent rows minus that of others."""
    if one.mean is None or other.mean is None:
        return Estimate(rows=one.n + other.n)
    known = one.error is not None and other.error is not None
    error = math.hypot(one.error or 0.0, other.error or 0.0) if known else None
    return _estimate(one.mean - other.mean, error, one.n + other.n, float(min(one.n, other.n)))


def off_policy(weights: Weighted, logged: Sums) -> Estimate:
    """The self-normalised inverse-propensity estimate Σwr / Σw of a target, on the rows of `logged`."""
    if not weights.w > 0:
        return Estimate(rows=logged.n)
    value = weights.wr / weights.w
    return _estimate(value, math.sqrt(_residual(weights, value)) / weights.w, logged.n, weights.effective)


def against(weights: Weighted, logged: Sums) -> Estimate:
    """The mean logged reward minus the off-policy estimate of a target, both on the same rows."""
    if not weights.w > 0 or logged.mean is None:
        return Estimate(rows=logged.n)
    target, mean, n = weights.wr / weights.w, logged.mean, logged.n
    spread = logged.squares - n * mean**2
    # Σ w(r − target)(r − mean): the rows are the same, so that their errors are not independent.
    shared = weights.wrr - (target + mean) * weights.wr + target * mean * weights.w
    variance = spread / n**2 - 2 * shared / (n * weights.w) + _residual(weights, target) / weights.w**2
    return _estimate(mean - target, math.sqrt(max(variance, 0.0)), n, weights.effective)


def _residual(weights: Weighted, value: float) -> float:
    """Σ w²(r − value)²."""
    return max(weights.wwrr - 2 * value * weights.wwr + value**2 * weights.ww, 0.0)


def _estimate(value: float | None, error: float | None, rows: int, effective: float) -> Estimate:
    if value is None or error is None or rows < 2:
        return Estimate(value=value, rows=rows, effective=effective)
    return Estimate(value=value, low=value - Z95 * error, high=value + Z95 * error, rows=rows, effective=effective)
