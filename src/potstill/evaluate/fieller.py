"""Fieller's interval of a ratio of two means: all ratios that a t-test does not refute.

It is exact for normal means, and does not exist where the denominator itself is not clearly away from 0.
"""

from __future__ import annotations

import math


def fieller(
    numerator: float, denominator: float, variances: tuple[float, float], covariance: float, errors: float
) -> tuple[float, float] | None:
    """The interval of numerator / denominator; None where there is none.

    Args:
        numerator: a mean.
        denominator: another.
        variances: of the two means, in that order.
        covariance: of the two.
        errors: how many standard errors the interval reaches, such as a quantile of Student's t.
    """
    yy, xx, xy = (errors**2 * part for part in (*variances, covariance))
    # Where numerator - ρ·denominator is within that many standard errors of 0: a·ρ² - 2b·ρ + c ≤ 0.
    a, b, c = denominator**2 - xx, denominator * numerator - xy, numerator**2 - yy
    if a <= 0:
        return None
    # The discriminant is not negative when a > 0; rounding may say so when nothing varies.
    root = math.sqrt(max(b**2 - a * c, 0.0))
    return (b - root) / a, (b + root) / a
