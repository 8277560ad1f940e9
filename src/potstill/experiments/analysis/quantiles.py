"""The distributions that tests of experiments need, under the names that they go by here."""

from __future__ import annotations

import math
from statistics import NormalDist

from potstill.evaluate.intervals import check_level


def t_quantile(level: float, df: float) -> float:
    """How many standard errors a two-sided interval reaches to each side under Student's t."""
    from scipy.special import stdtrit

    return float(stdtrit(df, (1 + check_level(level)) / 2))


def t_tails(t: float, df: float) -> float:
    """The probability of being further from 0 than `t`, either way: the p-value."""
    from scipy.special import stdtr

    return float(2 * stdtr(df, -abs(t)))


def f_tail(ratio: float, df: float, df_below: float) -> float:
    """The probability of an F ratio above `ratio`."""
    from scipy.special import fdtrc

    return float(fdtrc(df, df_below, ratio))


def t_power(shift: float, level: float, df: float) -> float:
    """The probability that a t-test finds a difference of `shift` standard errors, in its direction."""
    from scipy.special import nctdtr

    # Beyond 30 standard errors the library's function is no number, and the power is 1.
    return 1.0 if shift > 30 else 1 - float(nctdtr(df, shift, t_quantile(level, df)))


def normal_quantile(probability: float) -> float:
    """The value below which a standard normal number is with this probability."""
    return NormalDist().inv_cdf(probability)


def holm(p: list[float]) -> list[float]:
    """p-values that hold for all tests together (Holm 1979), in the order given."""
    order = sorted(range(len(p)), key=p.__getitem__)
    adjusted, largest = [math.nan] * len(p), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, p[place] * (len(p) - rank)))
        adjusted[place] = largest
    return adjusted
