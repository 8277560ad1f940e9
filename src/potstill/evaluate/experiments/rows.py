"""A report's tables as they are read, for the terminal and for the page: a header and rows of cells."""

from __future__ import annotations

from potstill.evaluate.experiments import words
from potstill.evaluate.experiments.analysis import Report
from potstill.evaluate.experiments.metrics import Metric
from potstill.evaluate.experiments.segments import Segment, Segments

Cells = tuple[str, ...]


def effect_rows(report: Report) -> tuple[Cells, list[Cells]]:
    """All metrics, a row each."""
    header = ("metric", "control", "treatment", "effect", "looking once", "looking every day", "p", "past explains")
    return header, [_metric(one) for one in report.metrics]


def segment_rows(found: Segments) -> tuple[Cells, list[Cells]]:
    """All segments, a row each."""
    return (found.by, "units", "effect", "interval", "p, corrected"), [_segment(one) for one in found.segments]


def split_sentence(report: Report) -> str:
    """Whether units were split as they should have been."""
    counts = report.split
    if counts.broken:
        return report.verdict.sentence
    if counts.share is None or counts.p is None:
        return "The split was not checked."
    return (
        f"{words.percent(counts.observed)} of units are in treatment, and {words.percent(counts.share)} should be: "
        f"within chance ({words.probability(counts.p)})."
    )


def _metric(one: Metric) -> Cells:
    measured = one.measured
    if measured is None:
        return (one.name, "–", "–", one.why_not, "–", "–", "–", "–")
    return (
        one.name,
        words.number(measured.control),
        words.number(measured.treatment),
        words.effect(measured),
        words.once(measured),
        words.anytime(measured),
        f"{measured.p:.2g}",
        "–" if one.variance_reduction is None else words.percent(one.variance_reduction),
    )


def _segment(one: Segment) -> Cells:
    if one.measured is None or one.p is None:
        return (one.name, f"{one.units:,}", "too few units", "–", "–")
    return (one.name, f"{one.units:,}", words.effect(one.measured), words.once(one.measured), f"{one.p:.2g}")
