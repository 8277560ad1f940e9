"""Charts of an evaluation: estimates with intervals, weights, segments, and rewards over time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import polars as pl

from potstill.evaluate.estimates import OffPolicyEstimate
from potstill.evaluate.evaluation import Evaluation, SegmentEvaluation
from potstill.evaluate.text import first_interval, starred
from potstill.evaluate.weights import WeightBin
from potstill.pages import Chart

# Colours that are readable on white and on near-black.
TARGET, AGAINST, LOGGED = "#c8662b", "#4a83c4", "#8b919b"
_SIDES = (TARGET, AGAINST, LOGGED)
_FEW = alt.Axis(tickCount=5)
_ROW = 44
#: Longest bar that is shown in full, in median half-widths.
_REACH = 3
_SCHEMA = {"what": pl.String, "policy": pl.String, "value": pl.Float64}
_ENDS = ("low", "high", "anytime_low", "anytime_high")


def estimates(evaluation: Evaluation) -> Chart:
    """The value of each policy, by estimator; the dashed line is the mean logged reward."""
    sides = {evaluation.target.name: evaluation.target.estimates}
    if evaluation.against is not None:
        sides[_other(evaluation)] = evaluation.against.estimates
    rows = [_row(starred(one), side, one) for side, found in sides.items() for one in found.values()]
    order = [starred(one) for one in evaluation.target.estimates.values()]
    return _forest(rows, order, list(sides), "reward per decision", line=evaluation.logged.value)


def differences(evaluation: Evaluation) -> Chart:
    """The difference between target and against, by estimator."""
    found = evaluation.difference or {}
    label = _less(evaluation)
    rows = [_row(starred(one), label, one) for one in found.values()]
    order = [starred(one) for one in found.values()]
    return _forest(rows, order, [label], "difference per decision", line=0.0)


def weights(bins: Sequence[WeightBin]) -> Chart:
    """Distribution of rows, and of the total weight, over importance weights."""
    rows, weight = "share of the rows", "share of the total weight"
    bars = pl.DataFrame([{"low": one.low, "high": one.high, "share": one.rows, "of": rows} for one in bins])
    ends = [(bins[0].low, 0.0), *((one.low, one.weight) for one in bins), (bins[-1].high, bins[-1].weight)]
    steps = pl.DataFrame([{"low": at, "share": share, "of": weight} for at, share in [*ends, (bins[-1].high, 0.0)]])
    x = alt.X("low:Q", title="weight", scale=alt.Scale(type="log", nice=False), axis=_decades(bins))
    y = alt.Y("share:Q", title=None, axis=alt.Axis(format="%", tickCount=5))
    scale = alt.Scale(domain=[rows, weight], range=[LOGGED, TARGET])
    colour = alt.Color("of:N", scale=scale, title=None, legend=alt.Legend(orient="top", symbolOpacity=1))
    filled = alt.Chart(bars, width="container", height=220).mark_rect(opacity=0.5, binSpacing=0)
    outline = alt.Chart(steps).mark_line(interpolate="step-after", strokeWidth=2)
    named = [alt.Tooltip(f"{name}:Q", format=".3~g") for name in ("low", "high")]
    share = alt.Tooltip("share:Q", format=".2%")
    return alt.layer(
        filled.encode(x=x, x2="high:Q", y=y, y2=alt.datum(0), color=colour, tooltip=["of:N", *named, share]),
        outline.encode(x=x, y=y, color=colour),
    )


def _decades(bins: Sequence[WeightBin]) -> alt.Axis:
    """Ticks at powers of ten; more where the range is narrow."""
    first, last = math.log10(bins[0].low), math.log10(bins[-1].high)
    powers = range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1)
    factors = (1,) if last - first > 3 else (1, 2, 5)
    values = [factor * 10.0**power for power in (powers.start - 1, *powers) for factor in factors]
    return alt.Axis(values=values, format="~g", grid=False)


def segments(evaluation: Evaluation, found: Sequence[SegmentEvaluation]) -> Chart:
    """The value of each policy in each segment."""
    sides = _sides(evaluation, found)
    rows = [_row(segment, side, one) for side, of in sides.items() for segment, one in of.items()]
    return _forest(rows, [one.name for one in found], list(sides), "reward per decision")


def segment_differences(evaluation: Evaluation, found: Sequence[SegmentEvaluation]) -> Chart:
    """The difference between target and against in each segment."""
    label = _less(evaluation)
    rows = [_row(one.name, label, one.difference) for one in found if one.difference]
    return _forest(rows, [one.name for one in found], [label], "difference per decision", line=0.0)


def over_time(evaluation: Evaluation) -> Chart:
    """The value of each policy, and the mean logged reward, by period of time."""
    found = evaluation.stretches
    sides = _sides(evaluation, found) | {"logged": {one.name: one.logged for one in found}}
    starts = {one.name: one.start for one in found}
    rows = [{**_row(name, side, one), "start": starts[name]} for side, of in sides.items() for name, one in of.items()]
    data = _frame(rows).with_columns(pl.from_epoch("start", "us"))
    base = alt.Chart(data, width="container", height=260).encode(
        x=alt.X("start:T", title=None, axis=_days(found)), color=_colour(list(sides))
    )
    scale = _scale(data.with_columns(anytime_low="low", anytime_high="high"))
    band = base.mark_area(opacity=0.14, clip=True).encode(
        y=alt.Y("low:Q", title="reward per decision", scale=scale, axis=_FEW), y2="high:Q"
    )
    value = alt.Y("value:Q", scale=scale)
    line = base.mark_line(point=True, strokeWidth=2).encode(y=value, tooltip=_tooltip("policy", "what"))
    return alt.layer(band, line)


def _days(found: Sequence[SegmentEvaluation]) -> alt.Axis:
    """Ticks at days, with hours if there are few days."""
    days = ((found[-1].start or 0) - (found[0].start or 0)) / 86.4e9
    return alt.Axis(tickCount=6, format="%-d %b" if days >= 6 else "%-d %b %H:%M", labelOverlap=True)


def _sides(evaluation: Evaluation, found: Sequence[SegmentEvaluation]) -> dict[str, dict[str, OffPolicyEstimate]]:
    sides = {evaluation.target.name: {one.name: one.target for one in found}}
    if evaluation.against is not None:
        sides[_other(evaluation)] = {one.name: one.against for one in found if one.against}
    return sides


def _other(evaluation: Evaluation) -> str:
    """The other policy's name, made distinct from the target's."""
    name = evaluation.against.name if evaluation.against else ""
    return f"{name} (other)" if name == evaluation.target.name else name


def _less(evaluation: Evaluation) -> str:
    return f"{evaluation.target.name} less {evaluation.against.name}" if evaluation.against else ""


def _row(what: str, policy: str, estimate: OffPolicyEstimate) -> dict[str, Any]:
    ends = [*_ends(first_interval(estimate)), *_ends(estimate.anytime)]
    return {"what": what, "policy": policy, "value": estimate.value, **dict(zip(_ENDS, ends, strict=True))}


def _ends(interval: Any) -> tuple[float | None, float | None]:
    finite = interval is not None and math.isfinite(interval.high - interval.low)
    return (interval.low, interval.high) if finite else (None, None)


def _frame(rows: Iterable[Mapping[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema_overrides={**_SCHEMA, **dict.fromkeys(_ENDS, pl.Float64)})


def _forest(
    rows: Sequence[Mapping[str, Any]],
    order: Sequence[str],
    policies: Sequence[str],
    title: str,
    *,
    line: float | None = None,
) -> Chart:
    """A forest plot: points with bars for each row and policy, and a dashed line."""
    data = _frame(rows).filter(pl.col("value").is_not_null())
    base = alt.Chart(data, width="container", height=_ROW * len(order)).encode(
        y=alt.Y("what:N", sort=list(order), title=None, axis=alt.Axis(labelLimit=220, grid=True)),
        color=_colour(policies),
        yOffset=alt.YOffset("policy:N", sort=list(policies)),
    )
    scale = _scale(data, line)
    thin = base.mark_rule(strokeWidth=1.2, opacity=0.7, clip=True).encode(
        x=alt.X("anytime_low:Q", title=title, scale=scale, axis=_FEW), x2="anytime_high:Q"
    )
    thick = base.mark_rule(strokeWidth=4, opacity=0.75, clip=True).encode(x=alt.X("low:Q", scale=scale), x2="high:Q")
    points = base.mark_point(filled=True, size=70, opacity=1).encode(
        x=alt.X("value:Q", scale=scale), tooltip=_tooltip("what", "policy")
    )
    dashes = alt.Chart(pl.DataFrame({"at": [line]}, schema={"at": pl.Float64})).mark_rule(
        strokeDash=[4, 4], color=LOGGED
    )
    layers = [thin, thick, points]
    return alt.layer(*([] if line is None else [dashes.encode(x=alt.X("at:Q", scale=scale))]), *layers)


def _scale(data: pl.DataFrame, *others: float | None) -> alt.Scale:
    """A domain for all values, and for bars up to a few median lengths: a far longer one would hide the rest."""
    usual = data.group_by("policy").agg(((pl.col("high") - pl.col("low")) / 2).median().alias("half"))
    reach = _REACH * usual.select(pl.max("half").fill_null(0.0)).item()
    lowest, highest = pl.min_horizontal("low", "anytime_low"), pl.max_horizontal("high", "anytime_high")
    ends = data.select(
        pl.max_horizontal(lowest, pl.col("value") - reach).min().alias("low"),
        pl.min_horizontal(highest, pl.col("value") + reach).max().alias("high"),
    )
    known = [end for end in (*ends.row(0), *others) if end is not None]
    domain = [min(known), max(known)] if len(set(known)) > 1 else alt.Undefined
    return alt.Scale(zero=False, nice=False, padding=12, domain=domain)


def _colour(policies: Sequence[str]) -> alt.Color:
    colours = [LOGGED if name == "logged" else colour for name, colour in zip(policies, _SIDES, strict=False)]
    legend = alt.Legend(orient="top", labelLimit=300, symbolOpacity=1)
    return alt.Color("policy:N", scale=alt.Scale(domain=list(policies), range=colours), title=None, legend=legend)


def _tooltip(*names: str) -> list[Any]:
    return [*(f"{name}:N" for name in names), *(alt.Tooltip(f"{n}:Q", format=".4~g") for n in ("value", "low", "high"))]
