"""An experiment's report as an HTML page with figures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import polars as pl

from potstill.experiments.analysis import text
from potstill.experiments.analysis.breakdowns import Day, Segments
from potstill.experiments.analysis.effects import LEAST_ANYTIME, Measured
from potstill.experiments.analysis.metrics import Metric
from potstill.experiments.analysis.report import (
    ADJUSTED,
    LEFT_OUT,
    TREATMENT,
    Report,
    effect_rows,
    is_adjusted,
    segment_rows,
    set_up,
    split_sentence,
)
from potstill.pages import Chart, Page, Section, Table

# The colours of the lab's report.
_COPPER, _GREY, _BLUE = "#c8662b", "#8b919b", "#4a83c4"
_RELATIVE, _ABSOLUTE = "effect, % of control's mean", "effect, treatment minus control"


_COLUMNS = ("effect", "low", "high", "anytime_low", "anytime_high")
_READING = (
    "Copper: the interval for one look, at the planned end. Blue: the anytime-valid interval, for looking every day "
    "and stopping at any time. An interval that excludes 0 is an effect."
)
_DAYS = (
    "Cumulative effect at the end of each UTC day. The blue band is valid on all days simultaneously: in at most one "
    "of {chance} experiments without an effect it ever excludes 0. The copper band is valid for a single day only."
)


def metrics_chart(metrics: Sequence[Metric]) -> Chart | None:
    """Forest plot of the relative effect on each metric, with both intervals; None if no metric has one."""
    rows = [
        {"label": one.name, **_relative(one.measured)}
        for one in metrics
        if one.measured is not None and one.measured.relative_interval is not None
    ]
    return _forest(rows, _RELATIVE) if rows else None


def segments_chart(found: Segments) -> Chart | None:
    """Forest plot of the effect by segment, with simultaneous intervals; relative if all segments allow it."""
    known = [(one.name, one.measured) for one in found.segments if one.measured is not None]
    if not known:
        return None
    relative = all(measured.relative_interval is not None for _, measured in known)
    rows = [{"label": name, **(_relative(one) if relative else _absolute(one))} for name, one in known]
    return _forest(rows, _RELATIVE if relative else _ABSOLUTE, anytime=False)


def days_chart(days: Sequence[Day], metric: str) -> Chart:
    """The cumulative effect by day as a line, with the two intervals as bands."""
    relative = all(one.measured.relative_interval and one.measured.relative_anytime for one in days)
    rows = [
        {"day": one.day, "units": one.measured.units, **(_relative if relative else _absolute)(one.measured)}
        for one in days
    ]
    title = _RELATIVE if relative else _ABSOLUTE
    names = ["looking every day", "looking once"]
    legend = alt.Legend(orient="top", title=None)
    every = alt.TimeIntervalStep(interval="day", step=-(-len(rows) // 7))
    axis = alt.Axis(format="%d %b", tickCount=every, labelOverlap=True, grid=False)
    base = alt.Chart(pl.DataFrame(rows), width="container", height=270, title=metric).encode(
        x=alt.X("day:T", title=None, axis=axis, scale=alt.Scale(type="utc"))
    )

    def band(name: str, low: str, high: str) -> alt.Chart:
        area: alt.Chart = (
            base.transform_calculate(interval=f"'{name}'")
            .mark_area(opacity=0.25)
            .encode(
                y=alt.Y(f"{low}:Q", title=title),
                y2=f"{high}:Q",
                color=alt.Color("interval:N", scale=alt.Scale(domain=names, range=[_BLUE, _COPPER]), legend=legend),
            )
        )
        return area

    line = base.mark_line(strokeWidth=2, point=alt.OverlayMarkDef(color=_COPPER), color=_COPPER).encode(
        y=alt.Y("effect:Q", title=title),
        tooltip=["day:T", "units:Q", *(alt.Tooltip(f"{name}:Q", format=".3g") for name in _COLUMNS)],
    )
    return alt.layer(
        band(names[0], "anytime_low", "anytime_high"), band(names[1], "low", "high"), _zero(horizontal=True), line
    )


def _relative(measured: Measured) -> dict[str, float | None]:
    assert measured.relative_interval is not None
    anytime = measured.relative_anytime if measured.units >= LEAST_ANYTIME else None
    shares = (measured.relative, *measured.relative_interval, *(anytime or (None, None)))
    return {name: None if share is None else 100 * share for name, share in zip(_COLUMNS, shares, strict=True)}


def _absolute(measured: Measured) -> dict[str, float | None]:
    return dict(zip(_COLUMNS, (measured.difference, *measured.interval, *measured.anytime), strict=True))


def _forest(rows: Sequence[dict[str, Any]], title: str, *, anytime: bool = True) -> Chart:
    base = alt.Chart(pl.DataFrame(rows), width="container", height=alt.Step(24)).encode(
        y=alt.Y("label:N", title=None, sort=None, axis=alt.Axis(labelLimit=320, grid=False)),
        tooltip=["label:N", *(alt.Tooltip(f"{name}:Q", format=".3g") for name in _COLUMNS)],
    )
    axis = alt.Axis(tickCount=6, labelOverlap=True)
    wide = base.mark_rule(strokeWidth=2, color=_BLUE).encode(
        x=alt.X("anytime_low:Q", title=title, axis=axis), x2="anytime_high:Q"
    )
    bars = base.mark_rule(strokeWidth=5, color=_COPPER).encode(x=alt.X("low:Q", title=title, axis=axis), x2="high:Q")
    dots = base.mark_point(filled=True, size=70, opacity=1, color=_COPPER).encode(
        x=alt.X("effect:Q", title=title, axis=axis)
    )
    return alt.layer(_zero(horizontal=False), *([wide] if anytime else []), bars, dots)


def _zero(*, horizontal: bool) -> alt.Chart:
    rule = alt.Chart(pl.DataFrame({"zero": [0.0]})).mark_rule(strokeDash=[4, 4], color=_GREY)
    chart: alt.Chart = rule.encode(y="zero:Q") if horizontal else rule.encode(x="zero:Q")
    return chart


def report_page(report: Report) -> Page:
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
    """The arms and the period, in a sentence."""
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
        lines.append((text.percent(counts.observed), f"of units are in treatment, expected {should}."))
    elif measured is not None:
        interval = f"{100 * report.level:g} % interval {text.once(measured)}"
        lines.append((text.effect(measured), f"{report.main.name}, {interval}."))
    lines.append((f"{_units(report):,}", "units, both arms together."))
    decisions = report.decisions.control + report.decisions.treatment
    lines.append((f"{decisions:,}", "decisions that have become final."))
    return lines


def _metrics(report: Report) -> Section | None:
    chart = metrics_chart(report.metrics)
    several = (
        f"\n\nThe verdict is about {report.main.name}. The other metrics are separate tests: of {_chance(report)} "
        "metrics without an effect, about one appears to have one by chance."
    )
    figures = {"metrics": chart} if chart is not None else {}
    table = Table(*effect_rows(report), ADJUSTED if is_adjusted(report) else "")
    return Section("Effects", _READING + several, figures, [table], wide=True)


def _chance(report: Report) -> str:
    """Number of intervals of which one misses on average."""
    return f"{1 / (1 - report.level):.3g}"


def _days(report: Report) -> Section | None:
    if len(report.days) < 2:
        return None
    caption = _DAYS.format(chance=_chance(report))
    return Section("Day by day", caption, {"days": days_chart(report.days, report.main.name)}, wide=True)


def _segments(found: Segments | None) -> Section | None:
    if found is None:
        return None
    chart = segments_chart(found)
    caption = f"{found.sentence} The intervals hold for all segments simultaneously."
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
        "The arms, the randomised unit and the period.",
        tables=[Table(("setting", "value"), list(set_up(report).items()))],
    )
