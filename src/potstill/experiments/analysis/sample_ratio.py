"""Sample-ratio mismatch: whether the arms have as many units as the split should have given them.

A split that is not what it should be means that units were lost or added depending on the arm (a crash, a redirect, a
filter, a log that drops events). What is left can then not be compared, however large the effect. See Fabijan et al.
2019, "Diagnosing sample ratio mismatch in online controlled experiments".
"""

from __future__ import annotations

import math

import msgspec

from potstill.errors import InvalidOption

#: Splits this unlikely are taken for broken; one sound experiment in a thousand is.
ALARM = 0.001


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """How units were split.

    Attributes:
        control: Units.
        treatment: Units.
        share: Share of units that should be in treatment; None if that is not known.
        p: p-value of a chi-square test of that share; None if it is not known, or there are no units.
        broken: Whether the split is not what it should be.
    """

    control: int
    treatment: int
    share: float | None
    p: float | None
    broken: bool

    @property
    def observed(self) -> float:
        """The share of units in treatment."""
        return self.treatment / (self.control + self.treatment)


def split(control: int, treatment: int, share: float | None) -> Split:
    """Test a split of units against the share that was asked for."""
    p = None if share is None or not control + treatment else mismatch(control, treatment, share)
    return Split(control=control, treatment=treatment, share=share, p=p, broken=p is not None and p < ALARM)


def mismatch(control: int, treatment: int, share: float) -> float:
    """The probability of a split at least this far from the share, if the share is right (chi-square)."""
    if not 0 < share < 1:
        raise InvalidOption(f"share must be between 0 and 1, got {share}")
    units = control + treatment
    distance = abs(treatment - units * share) / math.sqrt(units * share * (1 - share))
    return math.erfc(distance / math.sqrt(2))
