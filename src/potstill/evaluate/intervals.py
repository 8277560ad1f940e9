"""Confidence intervals for a fixed number of rows: normal, bootstrap and empirical Bernstein.

The default interval is in `potstill.evaluate.empirical_likelihood`. For repeated looks as rows arrive, use
`potstill.evaluate.confidence_sequences`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from statistics import NormalDist

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.spaces import Parts

Values = NDArray[np.float64]

#: Maximum number of groups of rows that the bootstrap resamples. Their spread is then known to 1/√(2·16,384) = 0.6 %,
#: less than the Monte Carlo error of 1,000 replicates, and a million rows take as long as 16,384.
GROUPS = 16_384
#: Counts drawn at once: they fit in the processor cache, which makes the bootstrap two to four times as fast.
_COUNTS_AT_ONCE = 1 << 15
#: Note of an unbounded interval.
NO_WEIGHT = "too few rows on which the logged action is one that the target would take"


class Interval(msgspec.Struct, frozen=True):
    """A confidence interval.

    Attributes:
        low: Lower end; minus infinity if the rows say nothing.
        high: Upper end; infinity if the rows say nothing.
        level: Confidence level, such as 0.95.
        method: Name of the method.
        note: Caveat of the interval; usually empty.
    """

    low: float
    high: float
    level: float
    method: str
    note: str = ""

    @property
    def ends(self) -> tuple[float, float]:
        """Low and high."""
        return self.low, self.high


def normal(parts: Parts, level: float) -> Interval:
    """The normal interval, by the central limit theorem.

    Too short if few rows carry most of the weight, or if few rows have a reward other than the usual one.
    """
    value, influence = parts.value, parts.influence
    if len(influence) < 2 or not math.isfinite(value):
        return Interval(-math.inf, math.inf, level, "normal", few_rows(len(influence)) or NO_WEIGHT)
    margin = two_sided(level) * float(np.std(influence, ddof=1)) / math.sqrt(len(influence))
    return Interval(value - margin, value + margin, level, "normal")


def bootstrap(parts: Parts, level: float, key: Key, replicates: int = 1000) -> Interval:
    """The studentised Poisson bootstrap: each replicate counts each row a Poisson number of times with mean 1.

    Studentised, because importance weights are skewed: the one-sided coverage error of the percentile interval shrinks
    as 1/√N, that of this one as 1/N (Hall 1988, "Theoretical comparison of bootstrap confidence intervals"). Each
    replicate's standard error comes from the same sums as its value, so there is no nested bootstrap.

    Args:
        parts: Parts of the estimate.
        level: Confidence level.
        key: Key of the draws.
        replicates: Number of replicates; 1,000 give the ends to about 4 % of the interval's half-width.
    """
    value, columns = parts.value, _centred(parts)
    moments = _moments(_grouped(columns))
    error = float(_shift_and_error(moments.sum(axis=0, keepdims=True))[1][0])
    if not math.isfinite(value) or not math.isfinite(error):
        return Interval(-math.inf, math.inf, level, "bootstrap", few_rows(len(columns)) or NO_WEIGHT)
    t = _studentised(np.concatenate(list(_replicates(moments, key, replicates))))
    up, down = _quantile(t, (1 + check_level(level)) / 2), -_quantile(-t, (1 + level) / 2)
    low, high = (value - up * error, value - down * error) if error else (value, value)
    return Interval(low, high, level, "bootstrap", "" if math.isfinite(high - low) else NO_WEIGHT)


def bernstein(values: Values, low: float, high: float, level: float) -> Interval:
    """The empirical Bernstein interval: valid for any number of rows, if the bounds were known beforehand.

    Maurer & Pontil 2009, "Empirical Bernstein bounds and sample variance penalization", theorem 4, with three events
    (the mean too low, too high, the variance too small) of probability (1 - level) / 3 each.

    Args:
        values: Independent terms whose mean is the estimate, float64[N].
        low: Smallest value that a term could have had.
        high: Largest value that a term could have had.
        level: Confidence level.
    """
    check_bounds(values, low, high)
    n = len(values)
    if n < 2:
        return Interval(low, high, level, "bernstein", few_rows(n))
    log = math.log(3 / (1 - check_level(level)))
    margin = math.sqrt(2 * float(np.var(values, ddof=1)) * log / n) + 7 * (high - low) * log / (3 * (n - 1))
    mean = float(np.mean(values))
    return Interval(max(mean - margin, low), min(mean + margin, high), level, "bernstein")


def two_sided(level: float) -> float:
    """Half-width of a normal interval in standard errors: 1.96 for 0.95."""
    return NormalDist().inv_cdf((1 + check_level(level)) / 2)


def check_level(level: float) -> float:
    """The level, if it is between 0 and 1."""
    if not 0 < level < 1:
        raise InvalidOption(f"level must be between 0 and 1, such as 0.95, got {level}")
    return level


def check_bounds(values: Values, low: float, high: float) -> None:
    """Refuse terms outside the bounds, which would void the guarantee."""
    if not low < high:
        raise InvalidOption(f"low must be below high, got low={low}, high={high}")
    outside = np.flatnonzero(~((values >= low) & (values <= high)))
    if outside.size:
        row = outside[0]
        raise InvalidOption(
            f"row {row}: the term must be from {low} to {high}, got {values[row]} (and {outside.size - 1} more rows); "
            "state bounds that hold for every row that could have been logged"
        )


def few_rows(rows: int) -> str:
    """Note of an interval of fewer than two rows; empty if there are more."""
    return "fewer than two rows" if rows < 2 else ""


def _centred(parts: Parts) -> Values:
    """A one, and base, numerator and denominator centred so that the value is 0, float64[N, 4]: this keeps digits."""
    n = len(parts.influence)
    base, numerator, denominator = (
        np.full(n, default) if column is None else column
        for column, default in ((parts.base, 0.0), (parts.numerator, 0.0), (parts.denominator, 1.0))
    )
    total = float(denominator.sum())
    ratio = float(numerator.sum()) / total if total else math.nan
    return np.stack([np.ones(n), base - base.mean(), numerator - ratio * denominator, denominator], axis=1)


def _grouped(columns: Values) -> Values:
    """Sums over groups of rows that lie GROUPS apart, so that neighbours in time are in different groups."""
    sums = columns[:GROUPS].copy()
    for start in range(GROUPS, len(columns), GROUPS):
        part = columns[start : start + GROUPS]
        sums[: len(part)] += part
    return sums


def _moments(sums: Values) -> Values:
    """Per group: a one; rows, base, numerator, denominator; and the ten products of these four. float64[G, 15]."""
    i, j = np.triu_indices(4)
    return np.concatenate([np.ones((len(sums), 1)), sums, sums[:, i] * sums[:, j]], axis=1)


def _replicates(moments: Values, key: Key, replicates: int) -> Iterator[Values]:
    """Sums of the moments under Poisson counts, float64[some replicates, 15]."""
    rng, table = key.generator(), _poisson_table()
    at_once = max(_COUNTS_AT_ONCE // len(moments), 1)
    for start in range(0, replicates, at_once):
        shape = min(at_once, replicates - start), len(moments)
        yield table[rng.integers(0, 1 << 16, size=shape, dtype=np.uint16)] @ moments


@cache
def _poisson_table() -> Values:
    """Poisson counts of mean 1 by 16 random bits: several times as fast as NumPy's own draws."""
    distribution = np.cumsum([math.exp(-1) / math.factorial(count) for count in range(12)])
    return np.searchsorted(distribution, (np.arange(1 << 16) + 0.5) / (1 << 16)).astype(np.float64)


def _studentised(totals: Values) -> Values:
    shift, error = _shift_and_error(totals)
    with np.errstate(divide="ignore", invalid="ignore"):
        return shift / error


def _shift_and_error(totals: Values) -> tuple[Values, Values]:
    """The shift of the value from 0, and its standard error, for each row of summed moments [R, 15].

    A group with sums (n, b, u, d) of rows, base, numerator and denominator adds b + (u - r·d)/D - n·m to N times the
    error, where m = mean(base), r = Σu/Σd and D = mean(denominator).
    """
    groups, rows, base, numerator, denominator = totals.T[:5]
    i, j = np.triu_indices(4)
    products = np.empty((len(totals), 4, 4))
    products[:, i, j] = products[:, j, i] = totals[:, 5:]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio, scale = numerator / denominator, rows / denominator
        gradient = np.stack([-base / rows, np.ones_like(rows), scale, -ratio * scale], axis=1)
        squares = np.einsum("ri,rij,rj->r", gradient, products, gradient)
        error = np.sqrt(np.maximum(squares, 0) * groups / (groups - 1)) / rows
        return base / rows + ratio, error


def _quantile(t: Values, probability: float) -> float:
    """The quantile of replicates; NaN (nothing was drawn) counts as larger than all others."""
    return float(np.quantile(np.where(np.isnan(t), np.inf, t), probability, method="higher"))


def fieller(
    numerator: float, denominator: float, variances: tuple[float, float], covariance: float, errors: float
) -> tuple[float, float] | None:
    """Fieller's interval of numerator / denominator; None if it is unbounded.

    Args:
        numerator: A mean.
        denominator: Another mean.
        variances: Variances of the two means, in that order.
        covariance: Covariance of the two means.
        errors: Half-width in standard errors, such as a quantile of Student's t.
    """
    yy, xx, xy = (errors**2 * part for part in (*variances, covariance))
    # Where numerator - ρ·denominator is within `errors` standard errors of 0: a·ρ² - 2b·ρ + c ≤ 0.
    a, b, c = denominator**2 - xx, denominator * numerator - xy, numerator**2 - yy
    if a <= 0:
        return None
    # The discriminant is not negative when a > 0; rounding may say so when nothing varies.
    root = math.sqrt(max(b**2 - a * c, 0.0))
    return (b - root) / a, (b + root) / a
