"""Charts of the demo's report, each from the batches of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.lab.demo.demo import ALGORITHMS, Batch
from potstill.lab.demo.results import Results, microseconds
from potstill.lab.problems import BITRATES, Float64, VideoUpload
from potstill.pages import Chart
from potstill.policy import Policy

# All four are readable on white and on near-black.
_COLOURS = {"potstill": "#c8662b", "thompson": "#4a83c4", "uniform": "#8b919b", "best": "#2f9e72"}
# Best quality first. The ends of the viridis scale are left out: they are unreadable on black or on white.
_QUALITIES = ["#e8d437", "#a5d23c", "#5bc262", "#2aa07f", "#2f7f8e", "#3b5b92", "#46327e"]
_FEW = alt.Axis(tickCount=5)
_CURVE_POINTS = 250
_PROBES = 8_000
_BANDWIDTHS = 16
_CALIBRATION_BINS = 10


def running_reward(batches: Sequence[Batch]) -> Chart:
    """Mean reward so far, by algorithm."""
    return _lines(_curves(batches), "reward", "mean reward so far", zero=False)


def cumulative_regret(batches: Sequence[Batch]) -> Chart:
    """Regret so far, by algorithm."""
    return _lines(_curves(batches), "regret", "regret so far", zero=True)


def _curves(batches: Sequence[Batch]) -> pl.DataFrame:
    """Running means and sums at evenly spaced decisions, in long form."""
    total = batches[-1].decisions
    # The first few means are mostly noise and would stretch the axis.
    at = np.unique(np.linspace(max(total // 50, 1), total, _CURVE_POINTS).astype(int))
    frames = []
    for name, label in ALGORITHMS.items():
        rewards = np.concatenate([batch.outcomes[name].rewards for batch in batches]).cumsum()
        regrets = np.concatenate([batch.outcomes[name].regrets for batch in batches]).cumsum()
        frames.append(
            pl.DataFrame({"decisions": at, "reward": rewards[at - 1] / at, "regret": regrets[at - 1]}).with_columns(
                algorithm=pl.lit(label)
            )
        )
    return pl.concat(frames)


def _lines(data: pl.DataFrame, field: str, title: str, *, zero: bool) -> Chart:
    labels = list(ALGORITHMS.values())
    colour = alt.Scale(domain=labels, range=[_COLOURS[name] for name in ALGORITHMS])
    # Thompson sampling is dashed: a good imitation would hide a solid line.
    dashes = alt.Scale(domain=labels, range=[[1, 0], [5, 3], [1, 0], [1, 0]])
    chart: alt.Chart = (
        alt.Chart(data, width="container", height=260)
        .mark_line(strokeWidth=2)
        .encode(
            x=alt.X("decisions:Q", title="decisions", axis=_FEW),
            y=alt.Y(f"{field}:Q", title=title, scale=alt.Scale(zero=zero)),
            color=alt.Color("algorithm:N", scale=colour, title=None, legend=alt.Legend(orient="top", columns=2)),
            strokeDash=alt.StrokeDash("algorithm:N", scale=dashes, title=None),
            tooltip=["algorithm:N", "decisions:Q", alt.Tooltip(f"{field}:Q", format=".4~g")],
        )
    )
    return chart


def actions_by_bandwidth(batches: Sequence[Batch], seed: int) -> Chart:
    """How often each action is chosen at each bandwidth: by policies of the run, and by the best possible choice."""
    # Best quality first, so that the legend has the order of the stacked areas.
    actions = tuple(BITRATES)[::-1]
    colour = alt.Color("action:N", scale=alt.Scale(domain=actions, range=_QUALITIES), legend=alt.Legend(title=None))
    data, panels = _shares(batches, seed)
    chart: alt.FacetChart = (
        alt.Chart(data, width=142, height=230)
        .mark_area(interpolate="monotone")
        .encode(
            x=alt.X("mbps:Q", title="upload, Mbit/s", scale=alt.Scale(type="log", nice=False), axis=_decades()),
            y=alt.Y("share:Q", title="share of decisions", stack="normalize", axis=alt.Axis(format="%", tickCount=5)),
            color=colour,
            order=alt.Order("position:Q"),
            tooltip=["action:N", alt.Tooltip("mbps:Q", format=".2~g"), alt.Tooltip("share:Q", format=".1%")],
        )
        .facet(column=alt.Column("panel:N", sort=panels, title=None), spacing=14)
    )
    return chart


def _decades() -> alt.Axis:
    return alt.Axis(values=[0.1, 1, 10, 100], format="~g", grid=False)


def _shares(batches: Sequence[Batch], seed: int) -> tuple[pl.DataFrame, list[str]]:
    """Share of each action in each bandwidth band; all panels use the same requests."""
    world = VideoUpload()
    contexts = world.contexts(_PROBES, Key(seed).child("probe").generator())
    encoded = world.problem.encode_many(contexts)
    panels: dict[str, NDArray[Any]] = {
        title: policy.probabilities_many(encoded) for title, policy in _along_the_way(batches).items()
    }
    means = world.means(contexts)
    panels["best possible"] = means == means.max(axis=1, keepdims=True)
    mbps = contexts["up_kbps"] / 1000
    frames = [_banded(mbps, p, tuple(BITRATES)).with_columns(panel=pl.lit(title)) for title, p in panels.items()]
    return pl.concat(frames), list(panels)


def _along_the_way(batches: Sequence[Batch]) -> dict[str, Policy]:
    """The uniform policy, the first learnt one, one from the middle, and the last."""
    chosen = {1: batches[0].policy}
    for number in (len(batches) // 4, len(batches)):
        if number > 1:
            chosen[number] = batches[number - 1].policy
    titles = {f"after {batches[number - 1].decisions:,} decisions": policy for number, policy in chosen.items()}
    return {"before the first batch": batches[0].decided_by, **titles}


def _banded(mbps: Float64, p: NDArray[Any], actions: Sequence[str]) -> pl.DataFrame:
    """Mean probabilities per bandwidth band, in long form; band edges are in geometric progression."""
    low, high = np.quantile(mbps, [0.005, 0.995])
    edges = np.geomspace(low, high, _BANDWIDTHS + 1)
    band = np.digitize(mbps, edges) - 1
    rows = [
        {"mbps": float(np.sqrt(edges[k] * edges[k + 1])), "action": action, "position": a, "share": float(share)}
        for k in range(_BANDWIDTHS)
        for a, (action, share) in enumerate(zip(actions, p[band == k].mean(axis=0), strict=True))
    ]
    return pl.DataFrame(rows)


def calibration(batches: Sequence[Batch]) -> Chart:
    """Frequency of actions against their logged probability."""
    data = calibration_bins(*_decided(batches))
    ends = alt.Chart(pl.DataFrame({"p": [0.0, 1.0]}))
    diagonal = ends.mark_line(strokeDash=[4, 4], color=_COLOURS["uniform"]).encode(x="p:Q", y="p:Q")
    return alt.layer(diagonal, *_intervals(data, "frequency", "frequency of the action"))


def calibration_error(batches: Sequence[Batch]) -> Chart:
    """Frequency minus probability, which makes the intervals visible."""
    error = [pl.col(name) - pl.col("propensity") for name in ("frequency", "low", "high")]
    data = calibration_bins(*_decided(batches)).with_columns(error)
    zero = alt.Chart(pl.DataFrame({"p": [0.0]})).mark_rule(strokeDash=[4, 4], color=_COLOURS["uniform"])
    return alt.layer(zero.encode(y="p:Q"), *_intervals(data, "frequency", "frequency minus probability"))


def _decided(batches: Sequence[Batch]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Probabilities of all actions, float32[N, K], and the actions taken, int64[N]."""
    probabilities = [batch.decided_by.probabilities_many(batch.contexts) for batch in batches]
    return np.concatenate(probabilities), np.concatenate([batch.outcomes["potstill"].actions for batch in batches])


def _intervals(data: pl.DataFrame, field: str, title: str) -> tuple[alt.Chart, alt.Chart]:
    base = alt.Chart(data, width="container", height=280).encode(
        x=alt.X("propensity:Q", title="probability given by the policy", scale=alt.Scale(domain=[0, 1]), axis=_FEW)
    )
    bars = base.mark_rule(color=_COLOURS["potstill"], strokeWidth=2).encode(
        y=alt.Y("low:Q", title=title, axis=_FEW), y2="high:Q"
    )
    tooltip = [alt.Tooltip(f"{name}:Q", format=".4f") for name in ("propensity", field, "low", "high")]
    points = base.mark_point(filled=True, size=55, opacity=1, color=_COLOURS["potstill"]).encode(
        y=alt.Y(f"{field}:Q", title=title), tooltip=[*tooltip, alt.Tooltip("count:Q", format=",")]
    )
    return bars, points


def calibration_bins(p: NDArray[np.float32], actions: NDArray[np.int64]) -> pl.DataFrame:
    """(decision, action) pairs grouped by probability: mean probability, frequency, 95 % Wilson interval."""
    taken = np.arange(p.shape[1]) == actions[:, None]
    group = np.minimum((p * _CALIBRATION_BINS).astype(int), _CALIBRATION_BINS - 1).ravel()
    count = np.bincount(group, minlength=_CALIBRATION_BINS)
    used = count > 0
    n = count[used]
    propensity = np.bincount(group, p.ravel(), minlength=_CALIBRATION_BINS)[used] / n
    frequency = np.bincount(group, taken.ravel(), minlength=_CALIBRATION_BINS)[used] / n
    z = 1.96
    centre = (frequency + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(frequency * (1 - frequency) / n + z**2 / (4 * n**2))
    return pl.DataFrame(
        {"propensity": propensity, "frequency": frequency, "low": centre - half, "high": centre + half, "count": n}
    )


def fidelity(results: Results) -> Chart:
    """Held-out divergence between teacher and policy, per batch."""
    rows = [
        {"batch": row.batch, "measure": measure, "nats": value}
        for row in results.rows
        for measure, value in (("mean", row.fidelity.kl_mean), ("95th percentile", row.fidelity.kl_p95))
    ]
    colour = alt.Scale(domain=["mean", "95th percentile"], range=[_COLOURS["potstill"], _COLOURS["uniform"]])
    chart: alt.Chart = (
        alt.Chart(pl.DataFrame(rows), width="container", height=220)
        .mark_line(point=True)
        .encode(
            x=_batches(results),
            y=alt.Y("nats:Q", title="held-out KL, nats"),
            color=alt.Color("measure:N", scale=colour, title=None, legend=alt.Legend(orient="top")),
            tooltip=["batch:Q", "measure:N", alt.Tooltip("nats:Q", format=".3~g")],
        )
    )
    return chart


def regret_price(results: Results) -> Chart:
    """Upper bound on the cost of imitation per decision, per batch."""
    rows = [{"batch": row.batch, "price": row.fidelity.regret_price} for row in results.rows]
    chart: alt.Chart = (
        alt.Chart(pl.DataFrame(rows), width="container", height=220)
        .mark_line(point={"color": _COLOURS["potstill"]}, color=_COLOURS["potstill"])
        .encode(
            x=_batches(results),
            y=alt.Y("price:Q", title="reward per decision, upper bound"),
            tooltip=["batch:Q", alt.Tooltip("price:Q", format=".3~g")],
        )
    )
    return chart


def _batches(results: Results) -> alt.X:
    return alt.X("batch:Q", title="batch", axis=alt.Axis(tickMinStep=1, tickCount=min(len(results.rows), 10)))


def decision_time(results: Results) -> Chart:
    """Microseconds per decision, distilled and undistilled."""
    data = pl.DataFrame(
        {
            "algorithm": [ALGORITHMS["potstill"], ALGORITHMS["thompson"]],
            "us": [results.decide_us, results.sample_us],
            "text": [microseconds(results.decide_us), microseconds(results.sample_us)],
            "colour": [_COLOURS["potstill"], _COLOURS["thompson"]],
        }
    )
    room = 1.1 * max(results.decide_us, results.sample_us)  # for the label at the end of a bar
    base = alt.Chart(data, width="container", height=90).encode(
        x=alt.X("us:Q", title="microseconds per decision, median", axis=_FEW, scale=alt.Scale(domainMax=room)),
        y=alt.Y("algorithm:N", title=None, sort=None),
    )
    bars = base.mark_bar(height=22).encode(color=alt.Color("colour:N", scale=None))
    text = base.mark_text(align="left", dx=6, fontSize=12, color="#8b919b").encode(text="text:N")
    return alt.layer(bars, text)
