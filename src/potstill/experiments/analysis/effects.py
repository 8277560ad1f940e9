"""The effect of treatment on a metric: the difference of two arms, its intervals, and the same relative to control."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.evaluate.confidence_sequences import margin
from potstill.evaluate.fieller import fieller
from potstill.experiments.analysis.cuped import slopes
from potstill.experiments.analysis.quantiles import normal_quantile, t_quantile, t_tails
from potstill.experiments.analysis.ratio import linearised

Values = NDArray[np.float64]
Ends = tuple[float, float]

#: An effect is "large enough to be seen" if an experiment like this one finds it this often.
POWER = 0.8


class Effect(NamedTuple):
    """Two arm means with the covariance of their errors.

    Attributes:
        control: its mean.
        treatment: its mean.
        variances: of the errors of the two means, treatment first.
        covariance: of the two errors; not 0 if both were adjusted by what all units have in common.
        df: Welch's degrees of freedom.
        units: in both arms.
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

    def interval(self, errors: float) -> Ends:
        """The difference and that many standard errors either way."""
        return self.difference - errors * self.error, self.difference + errors * self.error

    def relative_interval(self, errors: float) -> Ends | None:
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
        treated: whether a unit is in treatment, bool[n].
        total: the outcome of each unit, float64[n].
        size: what it is divided by, such as its decisions; None for a mean per unit.
        past: covariates from before the experiment to adjust by, float64[n, k].
    """
    if min(np.count_nonzero(treated), np.count_nonzero(~treated)) < 2:
        return None
    arms = [_Arm.of(arm, total, size, past) for arm in (treated, ~treated)]
    found = _plain(*arms) if past is None else _adjusted(*arms)
    return found if found.error > _ROUNDING * max(abs(found.control), abs(found.treatment)) else None


#: Standard errors below this share of the means are what rounding leaves of none at all.
_ROUNDING = 1e-12


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
