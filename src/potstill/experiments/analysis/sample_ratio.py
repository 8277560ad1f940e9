"""Sample ratio mismatch: whether the observed split of units matches the configured share.

A mismatch means that units were lost or added depending on the arm (a crash, a redirect, a filter, a log that drops
events). The arms are then not comparable, however large the effect. See Fabijan et al. 2019, "Diagnosing sample ratio
mismatch in online controlled experiments".
"""

from __future__ import annotations

import math

import msgspec

from potstill.errors import InvalidOption

#: p-value below which a split counts as broken: a false alarm in one of a thousand sound experiments.
ALARM = 0.001


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of units by arm, and the sample-ratio check.

    Attributes:
        control: Number of units in control.
        treatment: Number of units in treatment.
        share: Expected share of units in treatment; None if unknown.
        p: p-value of a chi-square test of that share; None if it is unknown or there are no units.
        broken: Whether there is a sample ratio mismatch.
    """

    control: int
    treatment: int
    share: float | None
    p: float | None
    broken: bool

    @property
    def observed(self) -> float:
        """The observed share of units in treatment."""
        return self.treatment / (self.control + self.treatment)


def split(control: int, treatment: int, share: float | None) -> Split:
    """Test a split of units against the expected share."""
    p = None if share is None or not control + treatment else mismatch(control, treatment, share)
    return Split(control=control, treatment=treatment, share=share, p=p, broken=p is not None and p < ALARM)


def mismatch(control: int, treatment: int, share: float) -> float:
    """The p-value of a chi-square test of the expected share."""
    if not 0 < share < 1:
        raise InvalidOption(f"share must be between 0 and 1, got {share}")
    units = control + treatment
    distance = abs(treatment - units * share) / math.sqrt(units * share * (1 - share))
    return math.erfc(distance / math.sqrt(2))
