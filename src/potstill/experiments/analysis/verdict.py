"""The verdict of an experiment in one actionable sentence, and its caveats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from potstill.experiments.analysis import text
from potstill.experiments.analysis.effects import LEAST_ANYTIME, Measured, effect
from potstill.experiments.analysis.sample_ratio import ALARM, Split
from potstill.experiments.analysis.units import REWARD, Units, outcome_name

#: Minimum units per arm: with fewer, the central limit theorem does not justify the intervals.
FEW_UNITS = 30


Kind = Literal["stop", "better", "worse", "higher", "lower", "none", "unknown"]


def cautions(
    units: Units, decisions: Measured | None, split: Split, outcomes: Sequence[str], expected: Sequence[str]
) -> list[str]:
    """Warnings of a report; empty if there are none.

    Args:
        units: Totals of each unit.
        decisions: Effect on decisions per unit.
        split: Split of units.
        outcomes: Names of the reported outcomes.
        expected: Names of the configured metrics.
    """
    missing = [name for name in expected if outcome_name(name) not in units.outcomes]
    never = [f"Metric {name} was never sent with a reward." for name in missing]
    both = [] if split.broken else _in_both(units)  # with a broken split the verdict mentions them
    return [
        *_few(split),
        *both,
        *_left_out(units),
        *never,
        *_more_decisions(decisions),
        *_unequally_sent(units, outcomes),
    ]


def _few(split: Split) -> list[str]:
    lines, fewest = [], min(split.control, split.treatment)
    if 2 <= fewest < FEW_UNITS:
        few = text.counted(fewest, "unit")
        lines.append(f"An arm has only {few}: with fewer than {FEW_UNITS}, intervals are rough.")
    if split.share is None:
        lines.append("The split was not checked, because the share of treatment is unknown; state it with --share.")
    return lines


def _in_both(units: Units) -> list[str]:
    if not units.in_both:
        return []
    return [f"Excluded because they were in both arms: {text.counted(units.in_both, 'unit')}. {text.WHY_IN_BOTH}"]


def _left_out(units: Units) -> list[str]:
    lines = []
    if units.before_start:
        lines.append(
            f"Excluded because they precede the start: {text.counted(units.before_start, 'decision')} in an arm. If "
            "the start was moved while the experiment was running, units were already exposed to their arm: start "
            "again under another name."
        )
    if units.without_unit:
        lines.append(f"Excluded because they have no unit: {text.counted(units.without_unit, 'decision')}.")
    if units.not_finite:
        lines.append(f"Not finite, and treated as not sent: {text.counted(units.not_finite, 'value')} of metrics.")
    return lines


def _more_decisions(measured: Measured | None) -> list[str]:
    if measured is None or measured.p >= ALARM:
        return []
    return [
        f"Treatment changes the number of decisions per unit: {text.difference(measured)}. Effects per decision then "
        "compare different decisions; check the effects per unit as well."
    ]


def _unequally_sent(units: Units, outcomes: Sequence[str]) -> list[str]:
    lines = []
    for name in outcomes:
        found = effect(units.treated, units.sent[name], units.decisions) if name in units.sent else None
        if found is not None and found.p < ALARM:
            lines.append(
                f"{name} was sent with {text.percent(found.control)} of control's decisions and with "
                f"{text.percent(found.treatment)} of treatment's; where it was not sent it counts as 0."
            )
    return lines


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of an experiment.

    Attributes:
        kind: ``stop`` if the arms are not comparable; ``better`` or ``worse`` for reward; ``higher`` or ``lower`` for
            other metrics; ``none`` if no difference was found; ``unknown`` if there is too little data.
        sentence: The verdict in words.
        often: Whether the verdict also holds when looking every day (anytime-valid), in words; may be empty.
        settled: Whether the verdict holds when looking every day.
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
        metric: Name of the metric.
        outcome: Outcome of the metric; only for ``reward`` more is better.
        measured: The effect; None if it cannot be estimated.
        why_not: Reason if `measured` is None.
        in_both: Number of units in both arms; with a broken split, the likely cause.
    """
    if split.broken:
        return Verdict(kind="stop", sentence=_stop(split, in_both))
    if measured is None:
        return Verdict(kind="unknown", sentence=f"No verdict yet: {why_not}.")
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
        f"treatment, expected {text.percent(split.share)} ({text.probability(split.p)})"
    )
    if in_both:
        return (
            f"Stop: {text.counted(in_both, 'unit')} changed arms, and the others have a sample ratio mismatch: "
            f"{found}. {text.WHY_IN_BOTH}"
        )
    return (
        f"Stop: sample ratio mismatch. {found}. Units are missing from one arm, or were added to it: no effect can be "
        "trusted until the cause is found."
    )


def _none(metric: str, measured: Measured) -> str:
    return (
        f"No difference found yet: {metric} {text.difference(measured)}. "
        f"An effect of {text.detectable(measured)} was detectable."
    )


def _often(measured: Measured, settled: bool) -> str:
    if settled:
        return f"It also holds when looking every day ({text.anytime(measured)})."
    once = "This is valid for one look, at the planned end. When looking every day,"
    if measured.units < LEAST_ANYTIME:
        return f"{once} there are too few units: {LEAST_ANYTIME} are needed."
    return f"{once} it is not settled yet ({text.anytime(measured)})."


def _often_none(measured: Measured) -> str:
    if measured.units < LEAST_ANYTIME:
        return ""
    return f"When looking every day, the interval is {text.anytime(measured)}."
