"""Figures of the lab's report."""

from __future__ import annotations

import math
from collections.abc import Sequence

import altair as alt
import numpy as np
import polars as pl

from potstill.lab.measure import Growth
from potstill.lab.report.rows import Compared, Imitated, Timed
from potstill.lab.report.runs import PEERS, Run, problem_title
from potstill.pages import Chart

# Thompson sampling and its distilled policy share a hue; all are readable on white and on near-black.
_HUES = {
    "uniform": "#8b919b",
    "neural-greedy": "#8a8f1f",
    "linear-ts": "#c8662b",
    "neural-linear-ts": "#4a83c4",
    "bootstrap-nn-ts": "#2f9e72",
    "gp-ts": "#9a6bc9",
    "adaptive-ts": "#d43d51",
    "auto-ts": "#1a6e5a",
    "empirical-linear-ts": "#7a5195",
    "forest-ts": "#3f8f2f",
    "logistic-ts": "#b3742d",
    "neural-logistic-ts": "#2d6da8",
    "poisson-ts": "#5b8a94",
}
_OTHER_HUES = ["#d9a514", "#c2477a", "#3aa6b9", "#6f9a2a", "#8a6d5a", "#5f6fd0"]
_SOLID, _DASHED = [1, 0], [5, 3]
_RED, _COPPER, _GREY, _BLUE, _PINK = "#cf4436", "#c8662b", "#8b919b", "#4a83c4", "#c2477a"
_FEW = alt.Axis(tickCount=5)
#: Width in pixels of the panels of a figure that are side by side, without axes.
_ROOM = 760
#: Points of a curve; more are indistinguishable and make pages large.
_POINTS = 100
#: A line that ends above this many times the others is clipped.
_OUT_OF_FRAME = 1.6


def curves(runs: Sequence[Run], heading: str) -> Chart:
    """Regret or mean reward so far over decisions, with two standard errors, one line per algorithm."""
    zero = runs[0].measure == "regret"
    title = "regret so far" if zero else "mean reward so far"
    labels, hues, dashes = [run.title for run in runs], _hues(runs), [_dash(run) for run in runs]
    colour = alt.Scale(domain=labels, range=hues)
    domain = _frame(runs)
    frame = alt.Scale(zero=zero, domain=domain) if domain else alt.Scale(zero=zero)
    points = pl.concat(_points(run).with_columns(hue=pl.lit(hue)) for run, hue in zip(runs, hues, strict=True))
    legend = alt.Legend(orient="bottom", columns=2, symbolSize=300, symbolStrokeWidth=2)
    base = alt.Chart(points, width="container", height=270, title=heading).encode(
        x=alt.X("decisions:Q", title="decisions", axis=_FEW, scale=alt.Scale(nice=False))
    )
    bands = base.mark_area(opacity=0.13, clip=True).encode(
        y=alt.Y("low:Q", title=title, scale=frame),
        y2="high:Q",
        fill=alt.Fill("hue:N", scale=None),
        detail="algorithm:N",  # one band for each line of a hue
    )
    tooltip = [alt.Tooltip(f"{name}:Q", format=",.4~g") for name in ("decisions", "mean", "low", "high")]
    lines = base.mark_line(strokeWidth=2, clip=True).encode(
        y=alt.Y("mean:Q", title=title, scale=frame),
        stroke=alt.Stroke("algorithm:N", scale=colour, title=None, legend=legend),
        strokeDash=alt.StrokeDash(
            "algorithm:N", scale=alt.Scale(domain=labels, range=dashes), title=None, legend=legend
        ),
        tooltip=["algorithm:N", *tooltip],
    )
    return alt.layer(bands, lines)


def _points(run: Run) -> pl.DataFrame:
    steps = len(run.decisions)
    at = np.unique(np.linspace(0, steps - 1, min(steps, _POINTS)).round().astype(int))
    mean = run.curves.mean(axis=0)
    # A single trial has no standard error, and no band.
    spread = 2 * run.curves.std(axis=0, ddof=1) / np.sqrt(len(run.trials)) if len(run.trials) > 1 else 0 * mean
    columns = {
        "decisions": run.decisions[at],
        "mean": mean[at],
        "low": (mean - spread)[at],
        "high": (mean + spread)[at],
    }
    if run.measure == "regret":  # regret starts at 0
        columns = {name: np.insert(column, 0, 0.0) for name, column in columns.items()}
    return pl.DataFrame(columns).with_columns(algorithm=pl.lit(run.title))


def _frame(runs: Sequence[Run]) -> list[float] | None:
    """Range of the regret axis, if uniform choice would flatten all other lines."""
    others = [run for run in runs if run.algorithm != "uniform"]
    if runs[0].measure != "regret" or not others or len(others) == len(runs):
        return None
    highest = max(float(_points(run)["high"].max()) for run in others)  # type: ignore[arg-type]
    uniform = next(run for run in runs if run.algorithm == "uniform")
    return [0.0, 1.05 * highest] if uniform.estimate.mean > _OUT_OF_FRAME * highest else None


def _hues(runs: Sequence[Run]) -> list[str]:
    others = iter(_OTHER_HUES * len(runs))
    return [_HUES.get(run.imitates or run.algorithm) or next(others) for run in runs]


def _dash(run: Run) -> list[int]:
    """Undistilled algorithms and other libraries are dashed: a good imitation would hide a solid line."""
    return _DASHED if run.preset == PEERS or run.algorithm.endswith("-ts") else _SOLID


def forest(compared: Sequence[Compared]) -> Chart:
    """Cost of distillation on each problem, with its interval."""
    rows = [
        {
            "label": f"{problem_title(one.problem)} · {one.preset} · {one.title}",
            "cost": 100 * _cost(one, one.comparison.ratio),
            "low": 100 * _cost(one, one.comparison.low),
            "high": 100 * _cost(one, one.comparison.high),
            "colour": _RED if one.comparison.outside else _GREY if one.comparison.outside is None else _BLUE,
            "verdict": one.comparison.verdict,
        }
        for one in compared
        if None not in (one.comparison.ratio, one.comparison.low, one.comparison.high)
    ]
    base = alt.Chart(pl.DataFrame(rows), width="container", height=alt.Step(17)).encode(
        y=alt.Y("label:N", title=None, sort=None, axis=alt.Axis(labelLimit=380, grid=False)),
        color=alt.Color("colour:N", scale=None),
        tooltip=["label:N", "verdict:N"],
    )
    title = "cost of distillation, % (positive: the policy is worse than its Thompson sampling)"
    bars = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=title), x2="high:Q")
    dots = base.mark_point(filled=True, size=45, opacity=1).encode(x=alt.X("cost:Q", title=title))
    zero = alt.Chart(pl.DataFrame({"x": [0.0]})).mark_rule(strokeDash=[4, 4], color=_GREY).encode(x="x:Q")
    return alt.layer(zero, bars, dots)


def differences(compared: Sequence[Compared]) -> Chart:
    """Cost of distillation so far along the curve, with two standard errors, one panel per problem and preset."""
    rows = [
        {
            "panel": f"{problem_title(one.problem)} · {one.preset}",
            "algorithm": one.title,
            "decisions": decisions,
            "zero": 0.0,
            "cost": 100 * cost,
            "low": 100 * (cost - two_se),
            "high": 100 * (cost + two_se),
        }
        for one in compared
        if one.along is not None
        for decisions, cost, two_se in zip(one.along.decisions, one.along.cost, one.along.two_se, strict=True)
    ]
    known = {one.title: _HUES.get(one.algorithm.removesuffix("-il"), _GREY) for one in compared}
    panels = list(dict.fromkeys(str(row["panel"]) for row in rows))
    base = alt.Chart(pl.DataFrame(rows), width=_ROOM // 4, height=140).encode(
        x=alt.X("decisions:Q", title="decisions", axis=alt.Axis(tickCount=3, format="~s")),
        color=_top("algorithm", list(known), list(known.values())),
    )
    title = "IL − TS so far, % of TS"
    bands = base.mark_area(fillOpacity=0.15).encode(y=alt.Y("low:Q", title=title), y2="high:Q")
    lines = base.mark_line(strokeWidth=2).encode(y=alt.Y("cost:Q", title=title))
    zero = base.mark_line(strokeDash=[4, 4], strokeWidth=1).encode(
        y=alt.Y("zero:Q", title=title), color=alt.value(_GREY)
    )
    chart: alt.FacetChart = (
        alt.layer(zero, bands, lines)
        .facet(alt.Facet("panel:N", title=None, sort=panels), columns=4)
        .resolve_scale(x="independent", y="independent")
    )
    return chart


def _cost(one: Compared, ratio: float | None) -> float:
    assert ratio is not None
    return ratio - 1 if one.measure == "regret" else 1 - ratio


def latencies(timed: Sequence[Timed]) -> Chart:
    """Microseconds per decision, here and in the paper."""
    rows = [
        {"problem": problem_title(one.problem), "algorithm": one.title, "us": us, "where": where}
        for one in timed
        for where, us in (("here, median", one.median_us), ("here, p99", one.p99_us), ("paper, mean", one.paper_us))
        if us is not None
    ]
    places = ["here, median", "here, p99", "paper, mean"]
    problems = list(dict.fromkeys(str(row["problem"]) for row in rows))
    chart: alt.FacetChart = (
        alt.Chart(pl.DataFrame(rows), width=min(_ROOM // len(problems), 300), height=alt.Step(19))
        .mark_point(filled=True, size=50, opacity=1)
        .encode(
            x=alt.X("us:Q", title="µs per decision", scale=alt.Scale(type="log"), axis=_decades()),
            y=alt.Y("algorithm:N", title=None, sort=None, axis=alt.Axis(grid=True)),
            color=_top("where", places, [_COPPER, "#e3b08c", _BLUE]),
            tooltip=["problem:N", "algorithm:N", "where:N", alt.Tooltip("us:Q", format=".3~g")],
        )
        .facet(alt.Facet("problem:N", title=None, sort=problems), columns=len(problems))
    )
    return chart


def _decades() -> alt.Axis:
    """A logarithmic axis with few lines."""
    return alt.Axis(format="~g", values=[10.0**power for power in range(-2, 9)], labelOverlap=True)


def _top(field: str, names: Sequence[str], hues: Sequence[str]) -> alt.Color:
    scale = alt.Scale(domain=list(names), range=list(hues))
    return alt.Color(f"{field}:N", title=None, scale=scale, legend=alt.Legend(orient="top"))


_DIMENSIONS = {"d": "columns of a context, d", "k": "actions, k", "h": "units of a hidden layer, h", "b": "networks, B"}


def growth(grown: Sequence[Growth], field: str, title: str) -> Chart:
    """Time (``us``) or memory (``bytes``) as each dimension grows, both axes logarithmic."""
    rows = [
        {"method": one.method, "dimension": _DIMENSIONS[one.dimension], "size": size, "value": value}
        for one in grown
        for size, value in zip(one.sizes, getattr(one, field), strict=True)
    ]
    methods = list(dict.fromkeys(one.method for one in grown))
    hues = [_HUES.get(method.lower().replace("neurallinear", "neural-linear"), _PINK) for method in methods]
    chart: alt.FacetChart = (
        alt.Chart(pl.DataFrame(rows), width=_ROOM // 4, height=190)
        .mark_line(point=True, strokeWidth=2)
        .encode(
            x=alt.X("size:Q", title=None, scale=alt.Scale(type="log", nice=False), axis=_decades()),
            y=alt.Y("value:Q", title=title, scale=alt.Scale(type="log"), axis=_decades()),
            color=_top("method", methods, hues),
            tooltip=["method:N", "size:Q", alt.Tooltip("value:Q", format=".3~s")],
        )
        .facet(alt.Facet("dimension:N", title=None, sort=list(_DIMENSIONS.values())), columns=4)
        .resolve_scale(x="independent")
    )
    return chart


def imitation_error(imitated: Sequence[Imitated], heading: str) -> Chart:
    """Held-out KL divergence after each update, mean over trials, one panel per problem."""
    rows = [
        {"problem": problem_title(one.problem), "algorithm": one.title, "update": number + 1, "kl": max(kl, 1e-9)}
        for one in imitated
        for number, kl in enumerate(one.kl)
    ]
    known = {one.title: _HUES.get(one.algorithm.removesuffix("-il"), _GREY) for one in imitated}
    problems = list(dict.fromkeys(str(row["problem"]) for row in rows))
    chart: alt.FacetChart = (
        alt.Chart(pl.DataFrame(rows), width=_ROOM // 4, height=140)
        .mark_line(strokeWidth=2)
        .encode(
            x=alt.X("update:Q", title="update", axis=alt.Axis(tickCount=4, tickMinStep=1)),
            y=alt.Y("kl:Q", title="KL, nats", scale=alt.Scale(type="log"), axis=alt.Axis(tickCount=4, format="~g")),
            color=_top("algorithm", list(known), list(known.values())),
            tooltip=["problem:N", "algorithm:N", "update:Q", alt.Tooltip("kl:Q", format=".3~g")],
        )
        .facet(alt.Facet("problem:N", title=None, sort=problems), columns=4, title=f"held-out KL divergence: {heading}")
        .resolve_scale(x="independent")
    )
    return chart


def price(imitated: Sequence[Imitated]) -> Chart:
    """The cost of imitation by the teacher, its bound, and the measured difference, per decision."""
    rows = [
        {
            "label": f"{problem_title(one.problem)} · {one.preset} · {one.title}",
            "price": None if one.price is None else one.price.mean / one.decisions,
            "given up": None if one.given_up is None else one.given_up.mean / one.decisions,
            "seen": one.cost.mean / one.decisions,
            "low": (one.cost.mean - (one.cost.two_se or 0)) / one.decisions,
            "high": (one.cost.mean + (one.cost.two_se or 0)) / one.decisions,
        }
        for one in imitated
        if one.cost is not None
    ]
    # Prices and costs are orders of magnitude apart, and costs have both signs: linear up to a thousandth of the
    # largest, and logarithmic beyond.
    largest = max(
        (abs(float(value)) for row in rows for value in (row["price"], row["low"], row["high"]) if value), default=1.0
    )
    least = 10.0 ** (math.ceil(math.log10(largest)) - 3)
    scale = alt.Scale(type="symlog", constant=least)
    marks = [sign * least * 10**power for sign in (-1, 1) for power in range(4)]
    axis = alt.Axis(values=[0.0, *marks], format="~g")
    base = alt.Chart(pl.DataFrame(rows), width="container", height=alt.Step(17)).encode(
        y=alt.Y("label:N", title=None, sort=None, axis=alt.Axis(labelLimit=380, grid=False))
    )
    title = "reward per decision. Dots: IL − TS ± two standard errors. Black: cost by the teacher. Blue: the bound"
    bars = base.mark_rule(strokeWidth=2, color=_COPPER).encode(
        x=alt.X("low:Q", title=title, scale=scale, axis=axis), x2="high:Q"
    )
    dots = base.mark_point(filled=True, size=45, opacity=1, color=_COPPER).encode(x=alt.X("seen:Q", scale=scale))
    ticks = base.mark_tick(thickness=3, size=9, color=_BLUE).encode(x=alt.X("price:Q", scale=scale))
    zero = alt.Chart(pl.DataFrame({"x": [0.0]})).mark_rule(strokeDash=[4, 4], color=_GREY).encode(x="x:Q")
    known = base.mark_tick(thickness=3, size=9, color="black").encode(x=alt.X("given up:Q", scale=scale))
    return alt.layer(zero, bars, dots, ticks, known)
