"""An experiment's report as a page, with figures and tables."""

from __future__ import annotations

from potstill.experiments.analysis import charts, text
from potstill.experiments.analysis.breakdowns import Segments
from potstill.experiments.analysis.report import Report
from potstill.experiments.analysis.rows import (
    ADJUSTED,
    LEFT_OUT,
    TREATMENT,
    effect_rows,
    is_adjusted,
    segment_rows,
    set_up,
    split_sentence,
)
from potstill.pages.page import Page, Section, Table

_READING = (
    "Copper: the interval for those who look once, at the planned end. Blue: the interval for those who look every day "
    "and may stop at any time. An interval that does not touch 0 is an effect."
)
_DAYS = (
    "Everything up to the end of each UTC day. The blue band holds over all days together: of {chance} experiments "
    "without an effect it leaves 0, on whatever day, in one at most. The copper band holds for one day only."
)


def page(report: Report) -> Page:
    """The whole page. Where arms cannot be compared, or nothing is there to compare, it shows no effects."""
    effects = [_metrics(report), _days(report), _segments(report.segments)]
    if report.split.broken or not _units(report):
        effects = []
    sections = [*effects, _split(report) if _units(report) else None, _set_up(report)]
    return Page(
        f"Experiment {report.experiment}",
        _summary(report),
        _headlines(report) if _units(report) else [],
        [section for section in sections if section is not None],
        name=f"Potstill: experiment {report.experiment}",
    )


def _units(report: Report) -> int:
    return report.split.control + report.split.treatment


def _summary(report: Report) -> str:
    return " ".join([report.verdict.sentence, report.verdict.often, *report.warnings, _compared(report)]).strip()


def _compared(report: Report) -> str:
    """What the arms are, and when they were, in a sentence."""
    about = report.about
    if about is None or about.control is None:
        return ""
    when = f" {about.period}." if about.period else ""
    return f"Treatment: {TREATMENT}. Control: {about.control}.{when}"


def _headlines(report: Report) -> list[tuple[str, str]]:
    measured, counts = report.main.measured, report.split
    lines = []
    if counts.broken and counts.share is not None:
        should = text.percent(counts.share)
        lines.append((text.percent(counts.observed), f"of units are in treatment, and {should} should be."))
    elif measured is not None:
        interval = f"{100 * report.level:g} % interval {text.once(measured)}"
        lines.append((text.effect(measured), f"{report.main.name}, {interval}."))
    lines.append((f"{_units(report):,}", "units, both arms together."))
    decisions = report.decisions.control + report.decisions.treatment
    lines.append((f"{decisions:,}", "decisions that have become final."))
    return lines


def _metrics(report: Report) -> Section | None:
    chart = charts.metrics(report.metrics)
    several = (
        f"\n\nThe verdict is about {report.main.name}. Each of the others is a question of its own: of "
        f"{_chance(report)} metrics without an effect, one seems to have one by chance."
    )
    figures = {"metrics": chart} if chart is not None else {}
    table = Table(*effect_rows(report), ADJUSTED if is_adjusted(report) else "")
    return Section("Effects", _READING + several, figures, [table], wide=True)


def _chance(report: Report) -> str:
    """Of how many intervals one misses."""
    return f"{1 / (1 - report.level):.3g}"


def _days(report: Report) -> Section | None:
    if len(report.days) < 2:
        return None
    caption = _DAYS.format(chance=_chance(report))
    return Section("Day by day", caption, {"days": charts.days(report.days, report.main.name)}, wide=True)


def _segments(found: Segments | None) -> Section | None:
    if found is None:
        return None
    chart = charts.segments(found)
    caption = f"{found.sentence} The intervals are wide enough to hold for all segments together."
    figures = {"segments": chart} if chart is not None else {}
    return Section(f"By {found.by}", caption, figures, [Table(*segment_rows(found))], wide=True)


def _split(report: Report) -> Section:
    counts, decisions = report.split, report.decisions
    rows = [
        ("control", f"{counts.control:,}", f"{decisions.control:,}"),
        ("treatment", f"{counts.treatment:,}", f"{decisions.treatment:,}"),
    ]
    left_out = f" {LEFT_OUT}" if counts.broken else ""
    return Section("The split", split_sentence(report) + left_out, tables=[Table(("arm", "units", "decisions"), rows)])


def _set_up(report: Report) -> Section:
    return Section(
        "Set-up",
        "What was compared, on whom, and when.",
        tables=[Table(("setting", "value"), list(set_up(report).items()))],
    )
