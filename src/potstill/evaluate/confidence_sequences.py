"""Confidence sequences: intervals that hold at all looks simultaneously, for any number of looks and any stopping time.

`asymptotic` is for any estimate that is close to a mean of many rows. `bounded` and `weighted` are valid from the first
row on, and are wider.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from potstill.errors import InvalidOption
from potstill.evaluate.intervals import Interval, Values, check_bounds, check_level

#: Number of rows at which the asymptotic sequence is tightest by default. At ten times as many rows it is 7 % wider
#: than optimal, at a hundred times 18 %, at a tenth 26 %: too low a value is better than too high a one.
BEST_AT = 10_000
#: Stakes that the exact sequences mix, evenly on a logarithmic scale. The best one at a total variance V (in squared
#: ranges) is about 3.5/√V: from a few rows to a billion.
_STAKES = np.geomspace(1e-4, 0.99, 80)
#: The table of boundaries has steps of half a percent in V, which costs a quarter of a percent of width.
_FIRST, _STEP = 0.01, 1.005


def asymptotic(mean: float, sd: float, n: int, level: float, best_at: float = BEST_AT) -> Interval:
    """The asymptotic confidence sequence at n rows.

    Waudby-Smith, Arbour, Sinha, Kennedy & Ramdas 2024, "Time-uniform central limit theory and asymptotic confidence
    sequences", theorem 2.2. It holds over all looks after a first one at which the central limit theorem has set in
    (some hundred rows).

    Args:
        mean: Mean of the rows' values so far, or any estimate whose influence values have this mean.
        sd: Standard deviation of the values.
        n: Number of rows.
        level: Confidence level over all looks together.
        best_at: Number of rows at which the sequence is tightest. Choose it beforehand: a value that follows the data,
            such as the current number of rows, voids the guarantee.
    """
    if n < 2:
        return Interval(-math.inf, math.inf, level, "anytime", "fewer than two rows")
    half = float(sd * margin(n, level, best_at))
    return Interval(mean - half, mean + half, level, "anytime")


def asymptotic_running(values: Values, level: float, best_at: float = BEST_AT) -> tuple[Values, Values]:
    """The lower and upper ends of `asymptotic` after each of the rows, float64[N] each; infinite after the first."""
    n = np.arange(1, len(values) + 1)
    centre = values.mean() if len(values) else 0.0
    sums, squares = np.cumsum(values - centre), np.cumsum(np.square(values - centre))
    with np.errstate(divide="ignore", invalid="ignore"):
        sd = np.sqrt(np.maximum(squares - sums**2 / n, 0) / (n - 1))
    half = np.where(n > 1, sd * margin(n, level, best_at), np.inf)
    return centre + sums / n - half, centre + sums / n + half


def margin(n: ArrayLike, level: float, best_at: float = BEST_AT) -> NDArray[np.float64]:
    """The half-width of the asymptotic sequence in standard deviations at each n."""
    if not best_at > 0:
        raise InvalidOption(f"best_at must be a number of rows above 0, got {best_at}")
    alpha = 1 - check_level(level)
    v = np.asarray(n, np.float64) * (_best(alpha) / best_at)
    return np.sqrt((v + 1) / v * np.log((v + 1) / alpha**2) / np.asarray(n, np.float64))


def _best(alpha: float) -> float:
    """The v = n·ρ² that makes (v + 1)/v · log((v + 1)/α²) smallest.

    There, the derivative says, v = log((v + 1)/α²); iterating that converges, as its slope is 1/(v + 1) < 1. The
    paper states the same number as -W₋₁(-α²/e) - 1.
    """
    v = -2 * math.log(alpha)
    for _ in range(200):
        v = math.log((v + 1) / alpha**2)
    return v


def bounded(values: Values, low: float, high: float, level: float) -> tuple[Values, Values]:
    """The exact confidence sequence of terms within known bounds: lower and upper ends after each row, float64[N] each.

    Howard, Ramdas, McAuliffe & Sekhon 2021, "Time-uniform, nonparametric, nonasymptotic confidence sequences", theorem
    4 (empirical Bernstein), with a mixture of stakes for the boundary. The terms may depend on the past and their mean
    may drift: what is covered is the average of the terms' conditional means so far. If that is known to be constant,
    the running maximum of the lower ends and the running minimum of the upper ones are covered as well.

    Args:
        values: Terms in order of arrival, float64[N].
        low: Smallest value that a term could have had.
        high: Largest value that a term could have had.
        level: Confidence level over all rows together.
    """
    check_bounds(values, low, high)
    return _both(values - low, high - values, low, high, level)


def weighted(weights: Values, rewards: Values, low: float, high: float, level: float) -> tuple[Values, Values]:
    """The exact confidence sequence of a target's value for rewards within known bounds and weights without any.

    Waudby-Smith, Wu, Ramdas, Karampatziakis & Mineiro 2022, "Anytime-valid off-policy inference for contextual
    bandits", section 3: a lower bound needs no upper bound of the terms, and the upper bound is a lower one for the
    reward's distance from `high`. It holds even if the target takes actions that the log never took.

    Args:
        weights: Importance weights in order of arrival, float64[N].
        rewards: Rewards, float64[N].
        low: Smallest possible reward.
        high: Largest possible reward.
        level: Confidence level over all rows together.
    """
    check_bounds(rewards, low, high)
    check_bounds(weights, 0.0, math.inf)
    return _both(weights * (rewards - low), weights * (high - rewards), low, high, level)


def _both(above: Values, below: Values, low: float, high: float, level: float) -> tuple[Values, Values]:
    """Ends from terms that count from `low` upwards and from `high` downwards."""
    alpha, unit = (1 - check_level(level)) / 2, high - low
    lows, highs = low + unit * _lower(above / unit, alpha), high - unit * _lower(below / unit, alpha)
    return np.clip(lows, low, high), np.clip(highs, low, high)


def _lower(x: Values, alpha: float) -> Values:
    """Lower ends for terms x >= 0 whose means are at most 1.

    For a stake 0 <= λ < 1 and a guess g in [0, 1] that was made before x, exp(λy - ψ(λ)y²) <= 1 + λy holds for
    y = x - g >= -1 and ψ(λ) = -log(1 - λ) - λ (Fan, Grama & Liu 2015). So exp(λ·Σ(x - mean) - ψ(λ)·Σ(x - g)²) is a
    supermartingale that begins at 1, any mixture over λ is one, and by Ville's inequality it ever reaches 1/α with
    probability α at most. V = Σ(x - g)² therefore bounds how far Σx ever runs ahead of the means.
    """
    n = np.arange(1, len(x) + 1)
    sums = np.cumsum(x)
    guesses = np.minimum((0.5 + sums - x) / n, 1.0)  # as if one row of 0.5 had come first
    v = np.cumsum(np.square(x - guesses))
    return (sums - _boundary(v, alpha)) / n


def _boundary(v: Values, alpha: float) -> Values:
    """The boundary of the sum at each V, from a table; V is rounded up."""
    if not len(v):
        return v
    steps = np.ceil(np.log(np.maximum(v, _FIRST) / _FIRST) / math.log(_STEP)).astype(np.int64)
    return _boundaries(alpha, math.ceil((steps[-1] + 1) / 512))[steps]


@lru_cache(maxsize=16)
def _boundaries(alpha: float, pieces: int) -> Values:
    """The boundary at the first 512·pieces steps of V: where the mixture reaches 1/α.

    The logarithm of the mixture is convex and rising in the sum, so Newton's method falls onto the root from the right.
    """
    v = _FIRST * np.power(_STEP, np.arange(512.0 * pieces))[:, None]
    costs, target = v * (-np.log1p(-_STAKES) - _STAKES), math.log(len(_STAKES) / alpha)
    s = ((target + costs) / _STAKES).min(axis=1, keepdims=True)
    for _ in range(12):
        exponents = _STAKES * s - costs
        top = exponents.max(axis=1, keepdims=True)
        terms = np.exp(exponents - top)
        total = terms.sum(axis=1, keepdims=True)
        s -= (top + np.log(total) - target) * total / (terms @ _STAKES[:, None])
    return np.ravel(s)
