"""The effect of treatment on a metric: the difference of two arms, its intervals, and the same relative to control."""

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
#: An effect is "large enough to be seen" if an experiment like this one finds it this often.
POWER = 0.8
#: Standard errors below this share of the means are what rounding leaves of none at all.
_ROUNDING = 1e-12
#: Units at which the interval for those who look every day is narrowest, unless the plan says otherwise. Better too
#: low than too high: ten times as many units cost 7 % of width, a tenth of them 26 %.
PLANNED = 1_000
#: Fewer units than this, and the interval for those who look every day is not relied upon: it needs the central limit
#: theorem to have set in at the first look.
LEAST_ANYTIME = 100


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


def linearised(total: Values, size: Values) -> Values:
    """One value per unit whose mean is Σ total / Σ size, and whose variance over √n is that of this ratio."""
    ratio = total.sum() / size.sum()
    linear: Values = ratio + (total - ratio * size) / size.mean()
    return linear


class Effect(NamedTuple):
    """Two arm means with the covariance of their errors.

    Attributes:
        control: Its mean.
        treatment: Its mean.
        variances: Variances of the errors of the two means, treatment first.
        covariance: Covariance of the two errors; not 0 if both were adjusted by what all units have in common.
        df: Welch's degrees of freedom.
        units: Units in both arms.
    """

    control: float
    treatment: float
    variances: tuple[float, float]
    covariance: float
    df: float
    units: int

    @property
    def difference(self) -> float:
        """Treatment less control."""
        return self.treatment - self.control

    @property
    def error(self) -> float:
        """The standard error of the difference."""
        return math.sqrt(max(sum(self.variances) - 2 * self.covariance, 0.0))

    @property
    def p(self) -> float:
        """The probability of a difference at least this large if there is none (Welch's t-test)."""
        return t_tails(self.difference / self.error, self.df)

    @property
    def relative(self) -> float | None:
        """The difference as a share of control's mean; None if that is not positive."""
        return self.difference / self.control if self.control > 0 else None

    def interval(self, errors: float) -> tuple[float, float]:
        """The difference and that many standard errors either way."""
        return self.difference - errors * self.error, self.difference + errors * self.error

    def relative_interval(self, errors: float) -> tuple[float, float] | None:
        """The same for the relative difference, by Fieller; None where control's mean may as well be 0."""
        ends = fieller(self.treatment, self.control, self.variances, self.covariance, errors)
        return None if ends is None or self.control <= 0 else (ends[0] - 1, ends[1] - 1)

    def fixed(self, level: float) -> float:
        """Standard errors of an interval for those who look once."""
        return t_quantile(level, self.df)

    def anytime(self, level: float, planned: int) -> float:
        """Standard errors of an interval for those who look as often as they like."""
        return anytime_errors(self.units, level, planned)

    def detectable(self, level: float) -> float:
        """The difference that an experiment like this one finds with a probability of 0.8."""
        return (self.fixed(level) + normal_quantile(POWER)) * self.error


def anytime_errors(units: int, level: float, planned: int) -> float:
    """How many standard errors an interval must reach that holds however often one looks, narrowest at `planned`."""
    return float(margin(units, level, best_at=planned)) * math.sqrt(units)


def effect(treated: NDArray[np.bool_], total: Values, size: Values | None, past: Values | None = None) -> Effect | None:
    """The effect on a mean per unit, or on a ratio of sums; None if an arm has fewer than two units or nothing varies.

    Args:
        treated: Whether a unit is in treatment, bool[n].
        total: The outcome of each unit, float64[n].
        size: What it is divided by, such as its decisions; None for a mean per unit.
        past: Covariates from before the experiment to adjust by, float64[n, k].
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
        """Of the mean."""
        return float(self.values.var(ddof=1)) / len(self.values)


def _plain(treated: _Arm, control: _Arm) -> Effect:
    means = float(control.values.mean()), float(treated.values.mean())
    variances = treated.variance, control.variance
    units = len(treated.values) + len(control.values)
    return Effect(*means, variances, 0.0, _welch(variances, treated, control), units)


def _adjusted(treated: _Arm, control: _Arm) -> Effect:
    """Each arm's values less what its past says, plus what the past of all units says: both means stay in place."""
    slope = slopes(treated, control)
    expected = [arm.past @ slope for arm in (treated, control)]
    rest = [_Arm(arm.values - known, arm.past) for arm, known in zip((treated, control), expected, strict=True)]
    plain = _plain(*rest)
    # Slopes that were fitted to the same units leave less than there is: as in a regression, by degrees of freedom.
    fitted = (plain.units - 2) / max(plain.units - 2 - len(slope), 1)
    of_treated, of_control = (fitted * variance for variance in plain.variances)
    common = float(np.concatenate(expected).mean())
    # The common part is a mean over both arms, and so shares errors with each of them.
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
    """Welch–Satterthwaite: between the smaller arm's degrees of freedom and those of both arms together."""
    sizes = len(treated.values) - 1, len(control.values) - 1
    below = sum(v**2 / n for v, n in zip(variances, sizes, strict=True))
    return sum(variances) ** 2 / below if below else float(sum(sizes))


class Ends(NamedTuple):
    """The two ends of an interval."""

    low: float
    high: float

    @property
    def is_above(self) -> bool:
        """Whether all of it is above 0."""
        return self.low > 0

    @property
    def is_below(self) -> bool:
        """Whether all of it is below 0."""
        return self.high < 0


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Treatment less control.

    Attributes:
        units: Units in both arms.
        control, treatment: the means of the arms.
        difference: Difference of the two.
        error: Its standard error.
        p: p-value of a difference at least this large if there is none (Welch's t-test).
        interval: Interval for those who look once.
        anytime: Anytime for those who look as often as they like.
        relative: The difference as a share of control's mean; None, as are its intervals, where that is not clearly
            above 0.
        relative_interval: Relative interval by Fieller's theorem.
        relative_anytime: The same.
        detectable: The difference that would have been found with a probability of 0.8.
    """

    units: int
    control: float
    treatment: float
    difference: float
    error: float
    p: float
    interval: Ends
    anytime: Ends
    relative: float | None
    relative_interval: Ends | None
    relative_anytime: Ends | None
    detectable: float

    @classmethod
    def of(cls, effect: Effect, level: float, planned: int = PLANNED) -> Measured:
        """An effect at a level of confidence."""
        fixed, anytime = effect.fixed(level), effect.anytime(level, planned)
        relative, relative_anytime = effect.relative_interval(fixed), effect.relative_interval(anytime)
        return cls(
            units=effect.units,
            control=effect.control,
            treatment=effect.treatment,
            difference=effect.difference,
            error=effect.error,
            p=effect.p,
            interval=Ends(*effect.interval(fixed)),
            anytime=Ends(*effect.interval(anytime)),
            relative=effect.relative if relative else None,
            relative_interval=Ends(*relative) if relative else None,
            relative_anytime=Ends(*relative_anytime) if relative_anytime else None,
            detectable=effect.detectable(level),
        )
