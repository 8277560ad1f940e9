"""What an experiment says, in one sentence that can be acted on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from potstill.experiments.analysis import text
from potstill.experiments.analysis.effects import LEAST_ANYTIME, Measured, effect
from potstill.experiments.analysis.sample_ratio import ALARM, Split
from potstill.experiments.analysis.units import REWARD, Units, called

#: With fewer units in an arm, intervals rest on hope rather than on the central limit theorem.
FEW_UNITS = 30


Kind = Literal["stop", "better", "worse", "higher", "lower", "none", "unknown"]


def cautions(
    units: Units, decisions: Measured | None, split: Split, shown: Sequence[str], expected: Sequence[str]
) -> list[str]:
    """Sentences, none if all is well.

    Args:
        units: Units that are compared.
        decisions: The effect on decisions per unit.
        split: Split of units.
        shown: Names of outcomes that are.
        expected: Names of metrics that should be there.
    """
    never = [f"Metric {name} was never sent with a reward." for name in expected if called(name) not in units.outcomes]
    both = [] if split.broken else _in_both(units)  # the verdict leads with them
    return [
        *_few(split),
        *both,
        *_left_out(units),
        *never,
        *_more_decisions(decisions),
        *_unequally_sent(units, shown),
    ]


def _few(split: Split) -> list[str]:
    lines, fewest = [], min(split.control, split.treatment)
    if 2 <= fewest < FEW_UNITS:
        few = text.counted(fewest, "unit")
        lines.append(f"An arm has only {few}: with fewer than {FEW_UNITS}, intervals are rough.")
    if split.share is None:
        lines.append("The share of treatment is not known, so the split was not checked; state it with --share.")
    return lines


def _in_both(units: Units) -> list[str]:
    if not units.in_both:
        return []
    return [f"Seen in both arms, and so left out: {text.counted(units.in_both, 'unit')}. {text.WHY_IN_BOTH}"]


def _left_out(units: Units) -> list[str]:
    lines = []
    if units.before_start:
        lines.append(
            f"In an arm before the start, and so left out: {text.counted(units.before_start, 'decision')}. If the "
            "start was moved while the experiment was running, units are compared that already knew their arm: begin "
            "again under another name."
        )
    if units.without_unit:
        lines.append(f"Without a unit, and so left out: {text.counted(units.without_unit, 'decision')}.")
    if units.not_finite:
        lines.append(f"Not finite, and so taken as not sent: {text.counted(units.not_finite, 'value')} of metrics.")
    return lines


def _more_decisions(measured: Measured | None) -> list[str]:
    if measured is None or measured.p >= ALARM:
        return []
    return [
        f"Treatment changes how many decisions a unit has: {text.difference(measured)}. Effects per decision then "
        "compare different decisions; look at those per unit as well."
    ]


def _unequally_sent(units: Units, shown: Sequence[str]) -> list[str]:
    lines = []
    for name in shown:
        found = effect(units.treated, units.sent[name], units.decisions) if name in units.sent else None
        if found is not None and found.p < ALARM:
            lines.append(
                f"{name} came with {text.percent(found.control)} of control's decisions and with "
                f"{text.percent(found.treatment)} of treatment's; where it did not come it counts as 0."
            )
    return lines


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What an experiment says.

    Attributes:
        kind: ``stop`` if the arms cannot be compared; ``better`` or ``worse`` for reward, ``higher`` or ``lower`` for
            other metrics; ``none`` if no difference was found; ``unknown`` if nothing can be said yet.
        sentence: The same in words.
        often: Whether it holds for those who look every day, in words; empty if there is nothing to add.
        settled: Whether it does.
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
        split: Split of units.
        metric: What it is called.
        outcome: What it is made of; more is better only for ``reward``.
        measured: The effect; None if there is none.
        why_not: The reason for that.
        in_both: Units that were seen in both arms; where the split is broken as well, they are the likely cause.
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
