"""What an experiment says, in one sentence that can be acted on."""

from __future__ import annotations

from typing import Literal

import msgspec

from potstill.experiments.analysis import text
from potstill.experiments.analysis.measured import LEAST_ANYTIME, Measured
from potstill.experiments.analysis.sample_ratio import Split
from potstill.experiments.analysis.units import REWARD

Kind = Literal["stop", "better", "worse", "higher", "lower", "none", "unknown"]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What an experiment says.

    Attributes:
        kind: ``stop`` if the arms cannot be compared; ``better`` or ``worse`` for reward, ``higher`` or ``lower`` for
            other metrics; ``none`` if no difference was found; ``unknown`` if nothing can be said yet.
        sentence: the same in words.
        often: whether it holds for those who look every day, in words; empty if there is nothing to add.
        settled: whether it does.
    """

    kind: Kind
    sentence: str
    often: str = ""
    settled: bool = False


def verdict(
    split: Split, metric: str, outcome: str, measured: Measured | None, why_not: str, in_both: int = 0
) -> Verdict:
    """The verdict on the main metric.

    Args:
        split: of units.
        metric: what it is called.
        outcome: what it is made of; more is better only for ``reward``.
        measured: the effect; None if there is none.
        why_not: the reason for that.
        in_both: units that were seen in both arms; where the split is broken as well, they are the likely cause.
    """
    if split.broken:
        return Verdict(kind="stop", sentence=_stop(split, in_both))
    if measured is None:
        return Verdict(kind="unknown", sentence=f"Nothing can be said yet: {why_not}.")
    kind = _kind(measured, outcome)
    if kind == "none":
        return Verdict(kind=kind, sentence=_none(metric, measured), often=_often_none(measured))
    sentence = f"Treatment is {kind}: {metric} {text.difference(measured)}."
    settled = measured.units >= LEAST_ANYTIME and _kind(measured, outcome, anytime=True) == kind
    return Verdict(kind=kind, sentence=sentence, often=_often(measured, settled), settled=settled)


def _kind(measured: Measured, outcome: str, *, anytime: bool = False) -> Kind:
    interval = measured.anytime if anytime else measured.interval
    if interval.is_above:
        return "better" if outcome == REWARD else "higher"
    if interval.is_below:
        return "worse" if outcome == REWARD else "lower"
    return "none"


def _stop(split: Split, in_both: int) -> str:
    assert split.share is not None
    assert split.p is not None
    found = (
        f"{text.percent(split.observed)} of {text.counted(split.control + split.treatment, 'unit')} are in "
        f"treatment, and {text.percent(split.share)} should be ({text.probability(split.p)})"
    )
    if in_both:
        return (
            f"Stop: {text.counted(in_both, 'unit')} changed arms, and what is left is not split as it should be: "
            f"{found}. {text.WHY_IN_BOTH}"
        )
    return (
        f"Stop: the split is not what it should be. {found}. Units are missing from one arm, or were added to it: no "
        "effect can be trusted until the cause is found."
    )


def _none(metric: str, measured: Measured) -> str:
    return (
        f"No difference found yet: {metric} {text.difference(measured)}. "
        f"An effect of {text.detectable(measured)} could have been seen."
    )


def _often(measured: Measured, settled: bool) -> str:
    if settled:
        return f"It also holds for those who look every day ({text.anytime(measured)})."
    once = "That is for those who look once, at the planned end. For those who look every day"
    if measured.units < LEAST_ANYTIME:
        return f"{once} there are too few units: {LEAST_ANYTIME} are needed."
    return f"{once} it is not settled yet ({text.anytime(measured)})."


def _often_none(measured: Measured) -> str:
    if measured.units < LEAST_ANYTIME:
        return ""
    return f"For those who look every day the interval is {text.anytime(measured)}."
