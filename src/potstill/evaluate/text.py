"""Evaluations as text: numbers rounded by their precision, and plain sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime

from potstill.evaluate.diagnostics import Trust
from potstill.evaluate.estimates import OffPolicyEstimate
from potstill.evaluate.evaluation import Evaluation, SegmentEvaluation, TargetEvaluation
from potstill.evaluate.intervals import Interval
from potstill.evaluate.training_overlap import HELD_OUT, LOOKS_BETTER, UNSEEN, is_training_overlap

NOTHING = "–"
#: One-line description of each estimator.
ESTIMATORS = {
    "replay": "mean reward of rows whose action the policy draws; only for logs of uniformly random actions",
    "ips": "each reward times its weight; unbiased, and noisy if weights are large",
    "clipped-ips": "ips with large weights clipped; a little bias for less noise",
    "snips": "the weighted mean of rewards; less noisy than ips",
    "dm": "the prediction of a reward model; precise, and as biased as the model",
    "dr": "the model, corrected by weighted residuals; unbiased, and less noisy than ips if the model is good",
    "sndr": "dr with a self-normalised correction",
    "switch-dr": "the model alone where weights are large, dr elsewhere",
    "dr-os": "dr with large weights shrunk",
}


#: A standard error below this share of another one comes from rounding.
_ROUNDING = 1e-6
#: Numbers of this size and more are shown with an exponent.
_ASTRONOMIC = 1e15


class Figures:
    """Numbers of one evaluation, all with the same decimals: two significant digits of the headline's half-width.

    Small rates have two significant digits, even if their interval is wide. Differences between similar policies are
    more precise than the value of each, and have more decimals.
    """

    def __init__(self, evaluation: Evaluation) -> None:
        half = _half_width(evaluation.estimate) or _half_width(evaluation.logged) or 0.002
        self.decimals = max(_decimals(half), _decimals(_smallest(evaluation, half)))
        difference = (evaluation.difference or {}).get(evaluation.headline)
        surer = _half_width(difference) or 0.0
        self.of_changes = max(self.decimals, _decimals(surer)) if surer > _ROUNDING * half else self.decimals

    def number(self, value: float | None) -> str:
        """A value, such as ``0.741``."""
        return _shown(value, self.decimals)

    def change(self, value: float | None) -> str:
        """A difference, such as ``+0.052``."""
        shown = _shown(value, self.of_changes)
        return f"+{shown}" if value is not None and value > 0 and shown != NOTHING else shown

    def size(self, change: float) -> str:
        """The absolute value of a difference, such as ``0.052``."""
        return _shown(abs(change), self.of_changes)

    def interval(self, estimate: OffPolicyEstimate | None, *, signed: bool = False) -> str:
        """The first interval of an estimate, such as ``0.731 to 0.751``."""
        found = first_interval(estimate)
        if found is None or not math.isfinite(found.high - found.low):
            return NOTHING
        shown = self.change if signed else self.number
        return f"{shown(found.low)} to {shown(found.high)}"


def _half_width(estimate: OffPolicyEstimate | None) -> float | None:
    """Half the width of the first interval; two standard errors if it is not finite."""
    found = first_interval(estimate)
    if estimate is None or found is None or not math.isfinite(found.high - found.low):
        return 2 * estimate.standard_error if estimate and estimate.standard_error else None
    return (found.high - found.low) / 2


def _smallest(evaluation: Evaluation, half: float) -> float:
    """The smaller of the mean rewards that are to be compared, or the half-width if that is smaller than both.

    Not below a tenth of the half-width: a value that is all but 0 gets one digit more than its interval.
    """
    values = [abs(one.value) for one in (evaluation.estimate, evaluation.logged) if one.value]
    return max(min([*values, half]), half / 10)


def _decimals(number: float) -> int:
    """Decimals that show two significant digits of a number."""
    return min(max(1 - math.floor(math.log10(number)), 0), 8)


def _shown(value: float | None, decimals: int) -> str:
    if value is None or not math.isfinite(value):
        return NOTHING
    if abs(value) >= _ASTRONOMIC:
        return f"{value:.4g}".replace("-", "−")
    # Adding 0 turns a negative zero into a plain one.
    return f"{round(value, decimals) + 0.0:,.{decimals}f}".replace("-", "−")


def first_interval(estimate: OffPolicyEstimate | None) -> Interval | None:
    """The interval that was requested first; the anytime-valid one if none was."""
    if estimate is None:
        return None
    return next(iter(estimate.intervals.values()), estimate.anytime)


def percent(level: float) -> str:
    """A level, such as ``95 %``."""
    return f"{100 * level:.4g} %"


def verdict(evaluation: Evaluation) -> str:
    """The value of the policy, and whether it is better: one or two sentences."""
    figures, estimate = Figures(evaluation), evaluation.estimate
    name, rows = evaluation.target.name, evaluation.rows
    if estimate.value is None:
        return f"The log says nothing about {name}: {estimate.note}."
    would = "what was done" if name == "logged" else f"{name} would have"
    these = "this one decision" if rows == 1 else f"these {rows:,} decisions"
    said = f"On {these}, {would} earned {figures.number(estimate.value)} each"
    difference = (evaluation.difference or {}).get(evaluation.headline)
    if evaluation.against is None or difference is None or difference.value is None:
        return f"{said}{_in_brackets(figures.interval(estimate), evaluation.level)}."
    if evaluation.against.name == name and not difference.value and not difference.standard_error:
        interval = _in_brackets(figures.interval(estimate), evaluation.level)
        return f"{said}{interval}. It is compared with itself: state another policy to compare with."
    other = "what was done" if evaluation.against.name == "logged" else evaluation.against.name
    more = f"{figures.size(difference.value)} {'more' if difference.value >= 0 else 'less'} than {other}"
    interval = _in_brackets(figures.interval(difference, signed=True), evaluation.level)
    which = "" if doubt(evaluation)[1].grade == "no" else f" {_which(difference)}"
    return f"{said}, {more}{interval}.{which}"


def _in_brackets(interval: str, level: float) -> str:
    return "" if interval == NOTHING else f" ({percent(level)} interval {interval})"


def _which(difference: OffPolicyEstimate) -> str:
    found = first_interval(difference)
    if found is None or not math.isfinite(found.high - found.low):
        return f"There is no interval: {found.note if found else difference.note}."
    if found.low > 0:
        return "It would have been better."
    return "It would have been worse." if found.high < 0 else "The log cannot tell which of the two is better."


def trusted(evaluation: Evaluation) -> str:
    """Whether the estimate can be trusted, and the way out if not."""
    name, trust = doubt(evaluation)
    lead = {"good": "It can be trusted.", "caution": "Take it with caution.", "no": "Do not rely on it."}[trust.grade]
    of = "" if name == evaluation.target.name else f"Of {name}:"
    by_weights = () if is_training_overlap(trust) else (of, trust.sentence, trust.advice)
    return " ".join(part for part in (lead, *by_weights, learnt(evaluation)) if part)


def doubt(evaluation: Evaluation) -> tuple[str, Trust]:
    """The policy with the worse verdict, the first of equals, and the verdict."""
    worst = max(_sides(evaluation), key=lambda one: ("good", "caution", "no").index(one.trust.grade))
    return worst.name, worst.trust


def learnt(evaluation: Evaluation) -> str:
    """How many of the rows policies were trained on, and what that means; empty if none."""
    known = {side.name: side.learnt for side in _sides(evaluation) if side.learnt}
    unknown = " and ".join(side.name for side in _sides(evaluation) if side.learnt is None)
    shares = [
        f"{name} has learnt from {'all' if rows == evaluation.rows else f'{rows:,}'}" for name, rows in known.items()
    ]
    said = [f"Of these decisions, {' and '.join(shares)}. {LOOKS_BETTER} {UNSEEN}"] if shares else []
    said += [f"Whether {unknown} was trained on these decisions is not known. {LOOKS_BETTER} {HELD_OUT}"] * bool(
        unknown
    )
    return " ".join(said)


def reason(evaluation: Evaluation) -> str:
    """Why the estimate can be trusted or not, without advice on weights."""
    name, trust = doubt(evaluation)
    of = "" if name == evaluation.target.name else f"{name}: "
    by_weights = "" if is_training_overlap(trust) else f"{of}{trust.sentence}"
    return f"{by_weights} {learnt(evaluation)}".strip()


def _sides(evaluation: Evaluation) -> list[TargetEvaluation]:
    return [evaluation.target, *([evaluation.against] if evaluation.against else [])]


def bars(evaluation: Evaluation) -> str:
    """How to read the bars of charts."""
    level = percent(evaluation.level)
    return f"Thick bars are {level} intervals for one look at the log; thin bars hold for any number of looks."


def starred(estimate: OffPolicyEstimate) -> str:
    """An estimator's name, with an asterisk if it has a note."""
    return f"{estimate.estimator} *" if estimate.note else estimate.estimator


def footnotes(evaluation: Evaluation) -> list[str]:
    """The notes of estimators with an asterisk, a line each."""
    return [f"* {name}: {one.note}" for name, one in evaluation.target.estimates.items() if one.note]


def smoothing(evaluation: Evaluation) -> list[str]:
    """For targets that give one number per row: the bandwidth, and what intervals leave out; a line each."""
    return [
        f"{side.name} is one number per decision, which has no density: rewards of numbers within "
        f"{100 * side.bandwidth:.3g} % of the interval around it count (bandwidth {side.bandwidth:.3g}). Intervals do "
        "not cover the bias of that smoothing; --bandwidth states another one"
        for side in _sides(evaluation)
        if side.bandwidth is not None
    ]


def left_out(counts: Mapping[str, int], unfit: Mapping[str, int] | None = None) -> list[str]:
    """Excluded rows and the reason, a line each; `unfit` counts the requirements that rows of a table fail."""
    from potstill.evaluate.log import WHY

    why = {**WHY, "outside": "outside the requested time"}
    by_source = {source: rows for source, rows in counts.items() if source != "unfit" or unfit is None}
    lines = [f"{_rows(count)} left out: {must}" for must, count in (unfit or {}).items()]
    return lines + [
        f"{_rows(count)} left out ({source}): {why.get(source, 'of another source')}"
        for source, count in by_source.items()
    ]


def _rows(count: int) -> str:
    return f"{count:,} {'row' if count == 1 else 'rows'}"


def spanned(span: tuple[int, int] | None) -> str:
    """The days of a log, such as ``from 2026-11-01 to 2026-11-16``; empty if not known."""
    if span is None:
        return ""
    first, last = (datetime.fromtimestamp(time / 1e6, UTC).date().isoformat() for time in span)
    return f"of {first}" if first == last else f"from {first} to {last}"


def doubtful(segment: SegmentEvaluation) -> str:
    """One word about a segment whose estimate cannot be trusted; empty if it can."""
    return {"good": "", "caution": "caution", "no": "unreliable"}[segment.trust.grade]
