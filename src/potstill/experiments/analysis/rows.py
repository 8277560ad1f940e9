"""A report's tables and lines as they are read, for the terminal and for the page."""

from __future__ import annotations

from potstill.experiments.analysis import text
from potstill.experiments.analysis.about import moment
from potstill.experiments.analysis.breakdowns import Segment, Segments
from potstill.experiments.analysis.metrics import Metric
from potstill.experiments.analysis.report import Report

Cells = tuple[str, ...]

#: What treatment always is.
TREATMENT = "the policy that serves"
ADJUSTED = (
    "Where the past explains something, means and effects are adjusted by it (CUPED): they say what the arms would "
    "have had with the same past."
)
LEFT_OUT = "Effects are left out, since they cannot be trusted; --json has them."
#: The columns of effects that a narrow window has room for.
NARROW = (0, 3, 4, 5)


def effect_rows(report: Report) -> tuple[Cells, list[Cells]]:
    """All metrics, a row each."""
    header = ("metric", "control", "treatment", "effect", "looking once", "looking every day", "p", "past explains")
    return header, [_metric(one) for one in report.metrics]


def is_adjusted(report: Report) -> bool:
    """Whether any metric is adjusted by the past."""
    return any(one.adjusted for one in report.metrics)


def segment_rows(found: Segments) -> tuple[Cells, list[Cells]]:
    """All segments, a row each."""
    return (found.by, "units", "effect", "interval", "p, corrected"), [_segment(one) for one in found.segments]


def split_sentence(report: Report) -> str:
    """Whether units were split as they should have been."""
    counts = report.split
    if counts.share is None or counts.p is None:
        return "The split was not checked."
    chance = "not by chance" if counts.broken else "within chance"
    return (
        f"{text.percent(counts.observed)} of units are in treatment, and {text.percent(counts.share)} should be: "
        f"{chance} ({text.probability(counts.p)})."
    )


def set_up(report: Report) -> dict[str, str]:
    """What was compared with what, on whom, and when, by name; what is not known is left out."""
    about, share = report.about, report.split.share
    lines = {"share": "" if share is None else f"{text.percent(share)} of units in treatment"}
    lines |= {"level": f"{report.level:g}", "planned": text.counted(report.planned, "unit")}
    if about is None:
        return {name: line for name, line in lines.items() if line}
    known = {
        "control": about.control or "",
        "treatment": TREATMENT,
        "unit": "as requests state it" if about.unit == "unit" else f"the feature {about.unit}",
        "start": moment(about.start) if about.start else "",
        "period": about.period,
        **lines,
        "workspace": about.workspace,
        "made": moment(about.made),
    }
    return {name: line for name, line in known.items() if line}


def _metric(one: Metric) -> Cells:
    measured, explained = one.measured, one.variance_reduction
    if measured is None:
        return (one.name, "–", "–", one.why_not, "–", "–", "–", "–")
    return (
        one.name,
        text.number(measured.control),
        text.number(measured.treatment),
        text.effect(measured),
        text.once(measured),
        text.anytime(measured),
        f"{measured.p:.2g}",
        text.percent(explained) if explained is not None and explained > 0 else "–",
    )


def _segment(one: Segment) -> Cells:
    if one.measured is None or one.p is None:
        return (one.name, f"{one.units:,}", "too few units", "–", "–")
    return (one.name, f"{one.units:,}", text.effect(one.measured), text.once(one.measured), f"{one.p:.2g}")
