"""Power and sample size of an experiment, for one look and for daily looks.

With a standard deviation σ over units and a share s of n units in treatment, the standard error of the difference of
means is σ·√((1/s + 1/(1 - s))/n).
"""

from __future__ import annotations

import math

from potstill.errors import InvalidOption
from potstill.experiments.analysis.effects import LEAST_ANYTIME, anytime_errors, normal_quantile, t_power, t_quantile

#: Upper bound of the search for a sample size: more than there are people.
MOST_UNITS = 10**10


def standard_error(units: float, sd: float, share: float) -> float:
    """Standard error of the difference between two arms."""
    return sd * math.sqrt((1 / share + 1 / (1 - share)) / units)


def power_of(units: int, effect: float, sd: float, *, level: float = 0.95, share: float = 0.5) -> float:
    """The power of an experiment: its probability of detecting an effect, in its direction."""
    return t_power(abs(effect) / standard_error(units, sd, share), level, units - 2)


def units_needed(effect: float, sd: float, *, level: float = 0.95, power: float = 0.8, share: float = 0.5) -> int:
    """The smallest number of units that detects an effect with the stated power, with one look."""
    _check(effect, sd, level, power, share)
    low, high = 3, 4
    while power_of(high, effect, sd, level=level, share=share) < power:
        low, high = high, 2 * high
        if high > MOST_UNITS:
            raise InvalidOption(f"an effect of {effect:g} on a standard deviation of {sd:g} needs more than 10¹⁰ units")
    while high - low > 1:
        middle = (low + high) // 2
        enough = power_of(middle, effect, sd, level=level, share=share) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high


def detectable(units: int, sd: float, *, level: float = 0.95, power: float = 0.8, share: float = 0.5) -> float:
    """The minimum detectable effect of a number of units at the stated power."""
    return (t_quantile(level, units - 2) + normal_quantile(power)) * standard_error(units, sd, share)


def anytime_needed(effect: float, sd: float, *, level: float = 0.95, power: float = 0.8, share: float = 0.5) -> int:
    """The maximum number of units that daily looks need to detect an effect with the stated power.

    Assumes an anytime-valid interval that is narrowest at that number. The effect may be detected at any earlier look
    with at least `LEAST_ANYTIME` units.
    """
    _check(effect, sd, level, power, share)
    # At the number of units that it is tuned to, the boundary is the same for every number.
    wanted = anytime_errors(1_000, level, 1_000) + normal_quantile(power)
    return max(LEAST_ANYTIME, math.ceil((wanted * standard_error(1, sd, share) / effect) ** 2))


def _check(effect: float, sd: float, level: float, power: float, share: float) -> None:
    if not effect or not math.isfinite(effect):
        raise InvalidOption(f"the effect must be a number other than 0, got {effect}")
    if not (sd > 0 and math.isfinite(sd)):
        raise InvalidOption(f"the standard deviation must be above 0, got {sd}")
    for name, value in (("level", level), ("share", share)):
        if not 0 < value < 1:
            raise InvalidOption(f"{name} must be between 0 and 1, got {value}")
    if not 0.5 <= power < 1:
        raise InvalidOption(f"power must be from 0.5 to below 1, got {power}")
