"""Evaluations in words: figures with as many digits as they deserve, and plain sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime

from potstill.evaluate.diagnostics import Trust
from potstill.evaluate.estimates import Estimate
from potstill.evaluate.evaluation import Evaluation, Segment
from potstill.evaluate.intervals import Interval
from potstill.evaluate.lake import WHY

NOTHING = "–"
#: What each estimator does, in a line.
ESTIMATORS = {
    "replay": "mean reward of rows whose action the policy takes too; only for logs of uniformly random actions",
    "ips": "each reward times its weight; unbiased, and noisy where weights are large",
    "clipped-ips": "the same with large weights cut off; a little bias for less noise",
    "snips": "the weighted mean of rewards; steadier than ips",
    "dm": "what a reward model expects; precise, and as wrong as the model",
    "dr": "the model, corrected by weighted residuals; unbiased, and less noisy than ips if the model is any good",
    "sndr": "the same with a self-normalised correction",
    "switch-dr": "the model alone where weights are large, dr elsewhere",
    "dr-os": "dr with large weights shrunk",
}


class Figures:
    """Numbers of one evaluation, all with the same decimals: two digits of the headline's interval to each side."""

    def __init__(self, evaluation: Evaluation) -> None:
        error = evaluation.estimate.standard_error or evaluation.logged.standard_error or 0.001
        self.decimals = min(max(1 - math.floor(math.log10(2 * error)), 0), 8)

    def number(self, value: float | None) -> str:
        """A value, such as ``0.741``."""
        if value is None or not math.isfinite(value):
            return NOTHING
        return f"{value:,.{self.decimals}f}".replace("-", "−")

    def change(self, value: float | None) -> str:
        """A difference, such as ``+0.052``."""
        shown = self.number(value)
        return f"+{shown}" if value is not None and value > 0 and shown != NOTHING else shown

    def interval(self, estimate: Estimate | None, *, signed: bool = False) -> str:
        """The first interval of an estimate, such as ``0.731 to 0.751``."""
        found = first_interval(estimate)
        if found is None or not math.isfinite(found.high - found.low):
            return NOTHING
        shown = self.change if signed else self.number
        return f"{shown(found.low)} to {shown(found.high)}"


def first_interval(estimate: Estimate | None) -> Interval | None:
    """The interval that was asked for first; the anytime-valid one if none was."""
    if estimate is None:
        return None
    return next(iter(estimate.intervals.values()), estimate.anytime)


def percent(level: float) -> str:
    """A level, such as ``95 %``."""
    return f"{100 * level:.4g} %"


def verdict(evaluation: Evaluation) -> str:
    """What the policy would have earned, and whether that is better: one or two sentences."""
    figures, estimate = Figures(evaluation), evaluation.estimate
    name, rows = evaluation.target.name, evaluation.rows
    if estimate.value is None:
        return f"The log says nothing of {name}: {estimate.note}."
    would = "what was done" if name == "logged" else f"{name} would have"
    these = "this one decision" if rows == 1 else f"these {rows:,} decisions"
    said = f"On {these}, {would} earned {figures.number(estimate.value)} each"
    difference = (evaluation.difference or {}).get(evaluation.headline)
    if evaluation.against is None or difference is None or difference.value is None:
        return f"{said}{_in_brackets(figures.interval(estimate), evaluation.level)}."
    other = "what was done" if evaluation.against.name == "logged" else evaluation.against.name
    more = f"{figures.number(abs(difference.value))} {'more' if difference.value >= 0 else 'less'} than {other}"
    interval = _in_brackets(figures.interval(difference, signed=True), evaluation.level)
    which = "" if doubt(evaluation)[1].grade == "no" else f" {_which(difference)}"
    return f"{said}, {more}{interval}.{which}"


def _in_brackets(interval: str, level: float) -> str:
    return "" if interval == NOTHING else f" ({percent(level)} interval {interval})"


def _which(difference: Estimate) -> str:
    found = first_interval(difference)
    if found is None or not math.isfinite(found.high - found.low):
        return f"There is no interval to judge by: {found.note if found else difference.note}."
    if found.low > 0:
        return "It would have been better."
    return "It would have been worse." if found.high < 0 else "The log cannot tell which of the two is better."


def trusted(evaluation: Evaluation) -> str:
    """Whether the estimate can be trusted, and what to do if not."""
    name, trust = doubt(evaluation)
    lead = {"good": "It can be trusted.", "caution": "Take it with caution.", "no": "Do not rely on it."}[trust.grade]
    of = "" if name == evaluation.target.name else f"Of {name}:"
    return " ".join(part for part in (lead, of, trust.sentence, trust.advice) if part)


def doubt(evaluation: Evaluation) -> tuple[str, Trust]:
    """The policy that can be trusted less, the first if both are alike, and what is to be said of it."""
    sides = [evaluation.target, *([evaluation.against] if evaluation.against else [])]
    worst = max(sides, key=lambda side: ("good", "caution", "no").index(side.trust.grade))
    return worst.name, worst.trust


def bars(evaluation: Evaluation) -> str:
    """How to read the bars of figures."""
    level = percent(evaluation.level)
    return f"Thick bars are {level} intervals for one look at the log; thin ones hold however often you look."


def left_out(counts: Mapping[str, int]) -> list[str]:
    """Rows that were not used and why, a line each."""
    why = {**WHY, "outside": "outside of the time that was asked for"}
    return [
        f"{rows:,} rows left out ({reason}): {why.get(reason, 'of another source')}" for reason, rows in counts.items()
    ]


def spanned(span: tuple[int, int] | None) -> str:
    """From which day to which day, such as ``from 2026-11-01 to 2026-11-16``; empty if that is not known."""
    if span is None:
        return ""
    first, last = (datetime.fromtimestamp(time / 1e6, UTC).date().isoformat() for time in span)
    return f"of {first}" if first == last else f"from {first} to {last}"


def doubtful(segment: Segment) -> str:
    """A word on a segment whose estimate cannot be trusted; empty if it can."""
    return {"good": "", "caution": "caution", "no": "unreliable"}[segment.trust.grade]
