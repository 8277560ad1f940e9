"""The effect of treatment on a metric: absolute and relative difference of two arms, with confidence intervals.

The fixed-horizon interval is valid for one look at a planned time. The anytime-valid interval is a confidence sequence:
it is valid at all looks simultaneously, so an experiment may be monitored daily and stopped at any time.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.evaluate import check_level, fieller, margin
from potstill.experiments.analysis.cuped import slopes

Values = NDArray[np.float64]
#: Power that defines the minimum detectable effect.
POWER = 0.8
#: Standard errors below this share of the means are rounding errors and count as 0.
_ROUNDING = 1e-12
#: Default number of units at which the anytime-valid interval is narrowest. Better too low than too high: ten times as
#: many units cost 7 % of width, a tenth of them 26 %.
PLANNED = 1_000
#: Minimum number of units for the anytime-valid interval, which relies on the central limit theorem at the first look.
LEAST_ANYTIME = 100


def t_quantile(level: float, df: float) -> float:
    """Half-width of a two-sided Student-t interval, in standard errors."""
    from scipy.special import stdtrit

    return float(stdtrit(df, (1 + check_level(level)) / 2))


def t_tails(t: float, df: float) -> float:
    """The two-sided p-value of a t statistic."""
    from scipy.special import stdtr

    return float(2 * stdtr(df, -abs(t)))


def f_tail(ratio: float, df: float, df_below: float) -> float:
    """The upper tail probability of an F statistic."""
    from scipy.special import fdtrc

    return float(fdtrc(df, df_below, ratio))


def t_power(shift: float, level: float, df: float) -> float:
    """The power of a t-test at a true difference of `shift` standard errors, in its direction."""
    from scipy.special import nctdtr

    # Beyond 30 standard errors nctdtr returns NaN, and the power is 1.
    return 1.0 if shift > 30 else 1 - float(nctdtr(df, shift, t_quantile(level, df)))


def normal_quantile(probability: float) -> float:
    """Quantile of the standard normal distribution."""
    return NormalDist().inv_cdf(probability)


def holm(p: list[float]) -> list[float]:
    """p-values corrected for multiple testing (Holm 1979), in the order given."""
    order = sorted(range(len(p)), key=p.__getitem__)
    adjusted, largest = [math.nan] * len(p), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, p[place] * (len(p) - rank)))
        adjusted[place] = largest
    return adjusted


def linearised(total: Values, size: Values) -> Values:
    """Linearised ratio (delta method): one value per unit with mean Σ total / Σ size and the variance of the ratio."""
    ratio = total.sum() / size.sum()
    linear: Values = ratio + (total - ratio * size) / size.mean()
    return linear


class Effect(NamedTuple):
    """Two arm means with the covariance of their errors.

    Attributes:
        control: Mean of control.
        treatment: Mean of treatment.
        variances: Variances of the two means, treatment first.
        covariance: Covariance of the two means; not 0 after CUPED, whose adjustment pools all units.
        df: Welch's degrees of freedom.
        units: Number of units in both arms.
    """

    control: float
    treatment: float
    variances: tuple[float, float]
    covariance: float
    df: float
    units: int

    @property
    def difference(self) -> float:
        """Treatment minus control."""
        return self.treatment - self.control

    @property
    def error(self) -> float:
        """The standard error of the difference."""
        return math.sqrt(max(sum(self.variances) - 2 * self.covariance, 0.0))

    @property
    def p(self) -> float:
        """The p-value of no difference (Welch's t-test)."""
        return t_tails(self.difference / self.error, self.df)

    @property
    def relative(self) -> float | None:
        """The difference relative to control's mean; None if that mean is not positive."""
        return self.difference / self.control if self.control > 0 else None

    def interval(self, errors: float) -> tuple[float, float]:
        """The interval of the difference, `errors` standard errors to each side."""
        return self.difference - errors * self.error, self.difference + errors * self.error

    def relative_interval(self, errors: float) -> tuple[float, float] | None:
        """Fieller's interval of the relative difference; None if control's mean is not clearly above 0."""
        ends = fieller(self.treatment, self.control, self.variances, self.covariance, errors)
        return None if ends is None or self.control <= 0 else (ends[0] - 1, ends[1] - 1)

    def fixed(self, level: float) -> float:
        """Half-width of the fixed-horizon interval, in standard errors."""
        return t_quantile(level, self.df)

    def anytime(self, level: float, planned: int) -> float:
        """Half-width of the anytime-valid interval, in standard errors."""
        return anytime_errors(self.units, level, planned)

    def detectable(self, level: float) -> float:
        """The minimum detectable effect at a power of 0.8."""
        return (self.fixed(level) + normal_quantile(POWER)) * self.error


def anytime_errors(units: int, level: float, planned: int) -> float:
    """Half-width of the anytime-valid interval in standard errors; narrowest at `planned` units."""
    return float(margin(units, level, best_at=planned)) * math.sqrt(units)


def effect(treated: NDArray[np.bool_], total: Values, size: Values | None, past: Values | None = None) -> Effect | None:
    """The effect on a mean per unit or a ratio of sums; None if an arm has fewer than two units or nothing varies.

    Args:
        treated: Whether each unit is in treatment, bool[n].
        total: Outcome of each unit, float64[n].
        size: Denominator of a ratio, such as decisions; None for a mean per unit.
        past: CUPED covariates, float64[n, k].
    """
    if min(np.count_nonzero(treated), np.count_nonzero(~treated)) < 2:
        return None
    arms = [_Arm.of(arm, total, size, past) for arm in (treated, ~treated)]
    found = _plain(*arms) if past is None else _adjusted(*arms)
    return found if found.error > _ROUNDING * max(abs(found.control), abs(found.treatment)) else None


class _Arm(NamedTuple):
    values: Values
    past: Values

    @classmethod
    def of(cls, arm: NDArray[np.bool_], total: Values, size: Values | None, past: Values | None) -> _Arm:
        values = total[arm] if size is None else linearised(total[arm], size[arm])
        return cls(values, np.empty((len(values), 0)) if past is None else past[arm])

    @property
    def variance(self) -> float:
        """Variance of the mean."""
        return float(self.values.var(ddof=1)) / len(self.values)


def _plain(treated: _Arm, control: _Arm) -> Effect:
    means = float(control.values.mean()), float(treated.values.mean())
    variances = treated.variance, control.variance
    units = len(treated.values) + len(control.values)
    return Effect(*means, variances, 0.0, _welch(variances, treated, control), units)


def _adjusted(treated: _Arm, control: _Arm) -> Effect:
    """The effect after CUPED: values minus their prediction, plus the mean prediction over all units."""
    slope = slopes(treated, control)
    expected = [arm.past @ slope for arm in (treated, control)]
    rest = [_Arm(arm.values - known, arm.past) for arm, known in zip((treated, control), expected, strict=True)]
    plain = _plain(*rest)
    # Slopes fitted to the same units understate the residual variance: correct by degrees of freedom.
    fitted = (plain.units - 2) / max(plain.units - 2 - len(slope), 1)
    of_treated, of_control = (fitted * variance for variance in plain.variances)
    common = float(np.concatenate(expected).mean())
    # The mean prediction pools both arms, and is therefore correlated with each of them.
    weights = [len(known) / plain.units for known in expected]
    covariances = [np.cov(arm.values, known) / len(known) for arm, known in zip(rest, expected, strict=True)]
    with_treated, with_control = (weight * float(c[0, 1]) for weight, c in zip(weights, covariances, strict=True))
    of_common = sum(weight**2 * float(c[1, 1]) for weight, c in zip(weights, covariances, strict=True))
    return plain._replace(
        control=plain.control + common,
        treatment=plain.treatment + common,
        variances=(
            of_treated + 2 * with_treated + of_common,
            of_control + 2 * with_control + of_common,
        ),
        covariance=with_treated + with_control + of_common,
    )


def _welch(variances: tuple[float, float], treated: _Arm, control: _Arm) -> float:
    """Welch–Satterthwaite degrees of freedom."""
    sizes = len(treated.values) - 1, len(control.values) - 1
    below = sum(v**2 / n for v, n in zip(variances, sizes, strict=True))
    return sum(variances) ** 2 / below if below else float(sum(sizes))


class Interval(NamedTuple):
    """A confidence interval."""

    low: float
    high: float

    @property
    def is_above(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.low > 0

    @property
    def is_below(self) -> bool:
        """Whether the whole interval is below 0."""
        return self.high < 0


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A measured effect: treatment minus control.

    Attributes:
        units: Number of units in both arms.
        control, treatment: Means of the arms.
        difference: Treatment minus control.
        error: Standard error of the difference.
        p: p-value of no difference (Welch's t-test).
        interval: Fixed-horizon interval of the difference, valid for one look.
        anytime: Anytime-valid interval of the difference, valid at all looks simultaneously.
        relative: Difference relative to control's mean. None, as are its intervals, if that mean is not clearly
            above 0.
        relative_interval: Fixed-horizon interval of the relative difference (Fieller).
        relative_anytime: Anytime-valid interval of the relative difference (Fieller).
        detectable: Minimum detectable effect at a power of 0.8.
    """

    units: int
    control: float
    treatment: float
    difference: float
    error: float
    p: float
    interval: Interval
    anytime: Interval
    relative: float | None
    relative_interval: Interval | None
    relative_anytime: Interval | None
    detectable: float

    @classmethod
    def of(cls, effect: Effect, level: float, planned: int = PLANNED) -> Measured:
        """Summarise an effect at a confidence level."""
        fixed, anytime = effect.fixed(level), effect.anytime(level, planned)
        relative, relative_anytime = effect.relative_interval(fixed), effect.relative_interval(anytime)
        return cls(
            units=effect.units,
            control=effect.control,
            treatment=effect.treatment,
            difference=effect.difference,
            error=effect.error,
            p=effect.p,
            interval=Interval(*effect.interval(fixed)),
            anytime=Interval(*effect.interval(anytime)),
            relative=effect.relative if relative else None,
            relative_interval=Interval(*relative) if relative else None,
            relative_anytime=Interval(*relative_anytime) if relative_anytime else None,
            detectable=effect.detectable(level),
        )
