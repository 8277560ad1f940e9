"""The figures of an experiment's report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import polars as pl

from potstill.experiments.analysis.breakdowns import Segments
from potstill.experiments.analysis.days import Day
from potstill.experiments.analysis.measured import LEAST_ANYTIME, Measured
from potstill.experiments.analysis.metrics import Metric
from potstill.pages.page import Chart

# As in the lab's report.
_COPPER, _GREY, _BLUE = "#c8662b", "#8b919b", "#4a83c4"
_RELATIVE, _ABSOLUTE = "effect, % of control's mean", "effect, treatment less control"


def metrics(shown: Sequence[Metric]) -> Chart | None:
    """The relative effect on each metric, with both intervals; None if no metric has one."""
    rows = [
        {"label": one.name, **_relative(one.measured)}
        for one in shown
        if one.measured is not None and one.measured.relative_interval is not None
    ]
    return _forest(rows, _RELATIVE) if rows else None


def segments(found: Segments) -> Chart | None:
    """The effect in each segment, with intervals that hold together; relative where all segments can be."""
    known = [(one.name, one.measured) for one in found.segments if one.measured is not None]
    if not known:
        return None
    relative = all(measured.relative_interval is not None for _, measured in known)
    rows = [{"label": name, **(_relative(one) if relative else _absolute(one))} for name, one in known]
    return _forest(rows, _RELATIVE if relative else _ABSOLUTE, anytime=False)


def days(shown: Sequence[Day], metric: str) -> Chart:
    """How the effect stood at the end of each day: a line, and the two intervals as bands."""
    relative = all(one.measured.relative_interval and one.measured.relative_anytime for one in shown)
    rows = [
        {"day": one.day, "units": one.measured.units, **(_relative if relative else _absolute)(one.measured)}
        for one in shown
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


_COLUMNS = ("effect", "low", "high", "anytime_low", "anytime_high")


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
