"""What to know before believing a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from potstill.experiments.analysis import text
from potstill.experiments.analysis.effects import effect
from potstill.experiments.analysis.measured import Measured
from potstill.experiments.analysis.sample_ratio import ALARM, Split
from potstill.experiments.analysis.units import Units, called

#: With fewer units in an arm, intervals rest on hope rather than on the central limit theorem.
FEW_UNITS = 30


def cautions(
    units: Units, decisions: Measured | None, split: Split, shown: Sequence[str], expected: Sequence[str]
) -> list[str]:
    """Sentences, none if all is well.

    Args:
        units: that are compared.
        decisions: the effect on decisions per unit.
        split: of units.
        shown: names of outcomes that are.
        expected: names of metrics that should be there.
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
            "anew under another name."
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
