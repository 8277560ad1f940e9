"""The rates study as charts, tables and a page."""

from __future__ import annotations

import math

import altair as alt
import polars as pl

from potstill.lab.studies.rates import ABOVE_FLOOR, AS_GOOD, BELOW_BLIND, EXACT, Findings, Point, Slope
from potstill.pages import Chart, Page, Section, Table

TEACHER_TITLES = {"linear-ts": "Linear-TS", "neural-linear-ts": "NeuralLinear-TS"}
_COPPER, _GREY = "#c8662b", "#8b919b"
# From many labels to few; all are distinguishable on white and on near-black.
_BLUES = ["#2f5d9b", "#4a83c4", "#6ba3d6", "#3f9c8f", "#63b78a", "#9ccb72", "#c9b458"]


def page(findings: Findings) -> Page:
    """The whole page."""
    rates = findings.rates
    return Page(
        "How many contexts, how many labels",
        f"Policies distilled from {TEACHER_TITLES[rates.teacher]} on {rates.problem}, after {rates.decisions:,} "
        "decisions. Each is trained on N contexts, with exact labels or with N_a actions sampled from the posterior "
        "per context, and measured by "
        f"its KL divergence from the teacher on fresh contexts. {rates.repeats} repeats, seed {rates.seed}.",
        headlines(findings),
        [_contexts(findings), _labels(findings), _worth(findings), _conditions(findings)],
        name=f"Potstill: rates, {rates.teacher} on {rates.problem}",
    )


def headlines(findings: Findings) -> list[tuple[str, str]]:
    """Key figures, each with a caption."""
    few = findings.rates.labels[0]
    return [
        (
            exponent(findings.in_contexts[EXACT]),
            "Exponent of divergence as a power of N, with exact labels. The theorem's bound: −1.",
        ),
        (
            exponent(findings.in_contexts[few]),
            f"The same exponent with {_labels_each(few)}. The theorem's bound for large N: −½.",
        ),
        (
            exponent(findings.in_labels),
            "Exponent of the excess divergence of sampled labels, as a power of N·N_a. The theorem's bound: −½.",
        ),
        _gain(findings),
    ]


def _gain(findings: Findings) -> tuple[str, str]:
    """Contexts saved by exact labels."""
    reference = _reference(findings)
    worth = [(kind, findings.contexts_for(reference.mean, kind)) for kind in findings.rates.labels]
    kind, contexts = next(((k, n) for k, n in worth if n is not None), (None, None))
    if kind is None or contexts is None:
        return "–", f"No sampled labels in this study match {reference.contexts:,} contexts with exact labels."
    text = f"contexts with {_labels_each(kind)} match {reference.contexts:,} contexts with exact labels."
    return f"{_rounded(contexts):,}", text


def _reference(findings: Findings) -> Point:
    """Divergence to match: that of exact labels at a small N, within reach of sampled labels."""
    curve = findings.curve(EXACT)
    return curve[len(curve) // 4]


def exponent(slope: Slope) -> str:
    """An exponent as text; a dash if it is not known."""
    return "–" if slope.exponent is None else f"{slope.exponent:.2f}".replace("-", "−")


def interval(slope: Slope) -> str:
    """Its interval as text; a dash if it is not known."""
    if slope.low is None or slope.high is None:
        return "–"
    return f"{slope.low:.2f} to {slope.high:.2f}".replace("-", "−")


# ---- sections


def _contexts(findings: Findings) -> Section:
    return Section(
        "More contexts",
        "Held-out divergence against the number of contexts, on logarithmic axes: a power law is a straight line. Bars "
        "are two standard errors. Dashed lines have the slopes of the theorem's two terms, 1/N and 1/√N; their height "
        "is arbitrary.",
        {"contexts": divergence(findings)},
        [slopes(findings)],
    )


def _labels(findings: Findings) -> Section:
    fitted = findings.in_labels
    return Section(
        "More labels",
        "Excess divergence of sampled over exact labels on the same contexts, against the total number of labels, "
        f"N·N_a. Fitted exponent: {exponent(fitted)}, 95 % interval {interval(fitted)}, from {fitted.points} points; "
        "the dashed line has the theorem's −½. Where curves of different N coincide, only the total matters: many "
        "labels on few contexts are worth as much as few labels on many.",
        {"labels": added(findings)},
    )


def _worth(findings: Findings) -> Section:
    reference = _reference(findings)
    return Section(
        "What exact labels are worth",
        f"First table: contexts needed to match the divergence of {reference.contexts:,} contexts with exact labels, "
        "interpolated between the points above. Second table: sampled labels per context needed to come within "
        f"{100 * (AS_GOOD - 1):.0f} % of the divergence with exact labels.",
        tables=[worth(findings), matching(findings)],
    )


def _conditions(findings: Findings) -> Section:
    rates = findings.rates
    return Section(
        "Method and limits",
        "The theorem is an upper bound for the best fit in a class that contains the teacher, so measured exponents "
        "may be steeper. Training is that of every update: a tenth of the contexts is held out, with the same kind of "
        "labels, for early stopping, and there are at most 1,000 steps. Early stopping takes the place of a bounded "
        "class; with few labels it relies on noisy ones, as in a user's updates.\n\n"
        "More labels cannot reduce the divergence below the limit of the network and its training steps, here about "
        f"{findings.floor:.2g} nats; a policy that ignores the context has {findings.blind:.2g}. Exponents are fitted "
        f"to points above {ABOVE_FLOOR:g} times the former and below {BELOW_BLIND:.2g} times the latter. Intervals are "
        f"jackknife intervals over {rates.repeats} repeats of contexts, labels and training. The teacher is the same "
        "in all repeats, as in the theorem. Sampled labels are drawn from the exact propensities, which gives the "
        "distribution of posterior draws.",
    )


# ---- tables


def slopes(findings: Findings) -> Table:
    """The exponent in N for each kind of labels."""
    rows = []
    for kind, fitted in findings.in_contexts.items():
        bound = "−1" if kind == EXACT else "−1, then −½"
        rows.append([_kind(kind), exponent(fitted), interval(fitted), bound, str(fitted.points)])
    return Table(["labels per context", "exponent of N", "95 % interval", "bound", "points fitted"], rows)


def worth(findings: Findings) -> Table:
    """Contexts that match a number of contexts with exact labels."""
    reference, most = _reference(findings), findings.rates.contexts[-1]
    rows = [[_kind(EXACT), f"{reference.contexts:,}"]]
    for kind in reversed(findings.rates.labels):
        contexts = findings.contexts_for(reference.mean, kind)
        rows.append([_kind(kind), f"> {most:,}" if contexts is None else f"{_rounded(contexts):,}"])
    return Table(["labels per context", "contexts to match"], rows)


def matching(findings: Findings) -> Table:
    """For each N, the number of labels as good as exact ones, and the divergence with the most labels."""
    rows = []
    for n in findings.rates.contexts:
        by_labels = {point.labels: point.mean for point in findings.points if point.contexts == n}
        most = findings.rates.labels[-1]
        enough = findings.as_good_as_exact(n)
        rows.append(
            [
                f"{n:,}",
                f"{by_labels[EXACT]:.2g}",
                f"> {most:,}" if enough is None else f"{enough:,}",
                f"{by_labels[most] / by_labels[EXACT]:.2f}",
            ]
        )
    header = ["contexts", "KL, exact", "labels needed", f"KL with {most:,} / KL, exact"]
    return Table(header, rows)


def _kind(labels: int) -> str:
    return "exact" if labels == EXACT else f"{labels:,}"


def _labels_each(labels: int) -> str:
    return "one sampled label each" if labels == 1 else f"{labels:,} sampled labels each"


def _rounded(value: float) -> int:
    """A number to two digits, as it is interpolated."""
    return round(round(value), 1 - math.floor(math.log10(value)))


# ---- charts


def divergence(findings: Findings) -> Chart:
    """Held-out KL against N, a line for each kind of labels."""
    rows = [
        {"N": point.contexts, "kl": point.mean, "labels": _kind(point.labels), **_bar(point)}
        for point in findings.points
    ]
    names = [_kind(kind) for kind in findings.rates.kinds]
    colour = alt.Color(
        "labels:N", scale=alt.Scale(domain=names, range=[_COPPER, *_BLUES]), title="labels per context", sort=None
    )
    base = alt.Chart(pl.DataFrame(rows), width="container", height=360).encode(
        x=_log_x("N", "contexts, N", findings.rates.contexts), color=colour
    )
    tooltip = ["labels:N", "N:Q", alt.Tooltip("kl:Q", format=".3~g")]
    width = alt.condition(alt.datum.labels == "exact", alt.value(3), alt.value(1.6))
    lines = base.mark_line().encode(y=_log_y("kl", "held-out KL, nats"), strokeWidth=width)
    points = base.mark_point(filled=True, size=40, opacity=1).encode(
        y=_log_y("kl", "held-out KL, nats"), tooltip=tooltip
    )
    bars = base.mark_rule().encode(y=_log_y("low", "held-out KL, nats"), y2="high:Q")
    return alt.layer(*_guides(findings), bars, lines, points)


def _bar(point: Point) -> dict[str, float]:
    """Two standard errors either way, kept above 0 for the logarithmic axis."""
    half = 0.0 if math.isnan(point.error) else 2 * point.error
    return {"low": max(point.mean - half, point.mean / 4), "high": point.mean + half}


def _guides(findings: Findings) -> list[alt.Chart]:
    """Guide lines with the theorem's slopes."""
    first, last = findings.rates.contexts[0], findings.rates.contexts[-1]
    exact, few = findings.curve(EXACT)[0].mean, findings.curve(findings.rates.labels[0])[-1].mean
    # Below the curve of exact labels, and above that of the fewest labels.
    ends = [("1/N", first, exact / 2.5, -1.0), ("1/√N", last, 2 * few, -0.5)]
    reach = (last / first) ** 0.35
    charts = []
    for name, n, kl, power in ends:
        other = n * reach if n == first else n / reach
        rows = [{"N": x, "kl": kl * (x / n) ** power, "text": name} for x in sorted((n, other))]
        charts += _guide(pl.DataFrame(rows))
    return charts


def _guide(ends: pl.DataFrame) -> list[alt.Chart]:
    y = alt.Y("kl:Q", scale=alt.Scale(type="log"))
    line = alt.Chart(ends).mark_line(strokeDash=[5, 4], color=_GREY, strokeWidth=1.5).encode(x="N:Q", y=y)
    text = alt.Chart(ends[-1:]).mark_text(align="left", dx=5, color=_GREY, fontSize=12)
    return [line, text.encode(x="N:Q", y=y, text="text:N")]


def added(findings: Findings) -> Chart:
    """Divergence added by sampling against N·N_a, with a guide of the theorem's slope."""
    rows = [
        {"total": point.contexts * point.labels, "more": float(more.mean()), "N": point.contexts, "N_a": point.labels}
        for point, more in findings.excess()
    ]
    data = pl.DataFrame(rows, schema={"total": pl.Int64, "more": pl.Float64, "N": pl.Int64, "N_a": pl.Int64})
    x = _log_x("total", "total labels, N·N_a")
    y = _log_y("more", "excess KL over exact labels, nats")
    colour = alt.Color("N:O", title="contexts, N", scale=alt.Scale(scheme="viridis"), legend=alt.Legend(format=",d"))
    points = alt.Chart(data, width="container", height=320).mark_line(point={"filled": True, "size": 45}, opacity=0.9)
    tooltip = ["N:Q", "N_a:Q", alt.Tooltip("more:Q", format=".3~g")]
    return alt.layer(*_half(data), points.encode(x=x, y=y, color=colour, tooltip=tooltip))


def _half(data: pl.DataFrame) -> list[alt.Chart]:
    """A guide that falls as one over the root, through the middle of the points."""
    if data.is_empty():
        return []
    centre = [float(data[name].log().mean()) for name in ("total", "more")]  # type: ignore[arg-type]
    low, high = float(data["total"].min()), float(data["total"].max())  # type: ignore[arg-type]
    kl = [math.exp(centre[1] - (math.log(x) - centre[0]) / 2) for x in (low, high)]
    return _guide(pl.DataFrame({"N": [low, high], "kl": kl, "text": "1/√(N·N_a)"}))


def _log_x(field: str, title: str, values: tuple[int, ...] = ()) -> alt.X:
    axis = alt.Axis(values=list(values), format="~s") if values else alt.Axis(format="~s", tickCount=8)
    return alt.X(f"{field}:Q", title=title, scale=alt.Scale(type="log", nice=False), axis=axis)


def _log_y(field: str, title: str) -> alt.Y:
    axis = alt.Axis(format="~g", tickCount=6)
    return alt.Y(f"{field}:Q", title=title, scale=alt.Scale(type="log", nice=False), axis=axis)
