"""An effect as reports state it: with its intervals, absolute and relative to control."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from potstill.experiments.analysis.effects import Effect

#: Units at which the interval for those who look every day is narrowest, unless the plan says otherwise. Better too
#: low than too high: ten times as many units cost 7 % of width, a tenth of them 26 %.
PLANNED = 1_000

#: Fewer units than this, and the interval for those who look every day is not relied upon: it needs the central limit
#: theorem to have set in at the first look.
LEAST_ANYTIME = 100


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
        units: in both arms.
        control, treatment: the means of the arms.
        difference: of the two.
        error: its standard error.
        p: of a difference at least this large if there is none (Welch's t-test).
        interval: for those who look once.
        anytime: for those who look as often as they like.
        relative: the difference as a share of control's mean; None, as are its intervals, where that is not clearly
            above 0.
        relative_interval: by Fieller's theorem.
        relative_anytime: the same.
        detectable: the difference that would have been found with a probability of 0.8.
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
