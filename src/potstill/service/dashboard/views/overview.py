"""Overview: what serves, what arrives, what is earned, and whether all is well."""

from __future__ import annotations

from collections.abc import Iterator

from potstill.service.dashboard.html import Child, Html, join, tag
from potstill.service.dashboard.parts import (
    Series,
    badge,
    card,
    cards,
    chart,
    empty,
    number,
    section,
    table,
    value,
    when,
)
from potstill.service.dashboard.view import Call, View
from potstill.service.dashboard.views.shown import FEWEST_POINTS, estimate, findings, marks, ranges
from potstill.service.reads import insights
from potstill.service.status import in_thread
from potstill.summaries import MINUTE, Estimate, Overview, UpdateRun

_TONES = {"published": "good", "failed": "bad", "refused": "warn"}
#: Actions with a line of their own in a chart.
_LINES = 8


async def render(call: Call) -> Html:
    """The overview of a problem."""
    asked = call.asked(insights.RangeQuery)
    found = await in_thread(insights.overview_of, call.service, asked)
    name = call.service.name
    return join(
        tag("h1", "Overview"),
        findings(found.findings),
        _figures(found),
        ranges(name, VIEW.name, asked.hours),
        _series(found, name),
        _compared(found),
        _updates(found),
    )


def _figures(found: Overview) -> Html:
    latest = found.points[-1] if found.points else None
    serving = "none" if found.version is None else f"version {found.version}"
    unused = sum(found.unused.values())
    about = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in found.unused.items() if count)
    return cards(
        card("serving", serving, join(value(found.decides or "no usable policy"), ", since ", when(found.since))),
        card("mode", found.mode, None if found.experiment is None else value(f"experiment {found.experiment}")),
        card("decisions", f"{found.decisions:,}", f"{number(latest.decisions if latest else None)} per minute now"),
        card("rewards", f"{found.rewards:,}", f"{number(latest.rewards if latest else None)} per minute now"),
        card("joined", f"{found.joined:,}", f"{found.rewarded:,} with a reward, {found.pending:,} pending"),
        card("rewards not used", f"{unused:,}", about or "all rewards found their decision in time"),
        card("waiting in the log", f"{found.lag_seconds:,.0f} s", "age of the oldest event that is not in the lake"),
        _last_update(found),
    )


def _last_update(found: Overview) -> Html:
    run = found.update
    if run is None:
        return card("last update", "none yet", "potstill update DIR runs one")
    ended: Child = join(when(run.ended or run.began), "" if found.due is None else ", next ", when(found.due))
    return card("last update", run.outcome, ended)


def _series(found: Overview, problem: str) -> Html:
    if not found.points:
        return empty(
            "No decision is in the lake in this range.",
            f"A decision shows here within seconds: POST /v1/{problem}/decide, or choose a longer range.",
        )
    if len(found.points) < FEWEST_POINTS:
        return empty("One point is no line yet.", "Wait a few minutes, or choose a shorter range.")
    x = [point.time / 1e6 for point in found.points]
    places = marks(found, x[-1])
    charts = [
        chart("Mean reward of joined decisions, with 95% intervals", x, list(_rewards(found)), marks=places),
        chart(
            "Decisions and rewards per minute",
            x,
            [
                Series("decisions", [point.decisions for point in found.points]),
                Series("rewards", [point.rewards for point in found.points]),
            ],
            marks=places,
        ),
        chart("Shares of actions", x, list(_shares(found)), marks=places, stacked=True),
    ]
    return section("Over time", tag("div", charts, class_="charts"), note=_note(found))


def _note(found: Overview) -> str:
    width = found.width // MINUTE
    each = f"{width} min" if width < 60 else f"{width // 60} h" if width < 1440 else f"{width // 1440} d"
    return f"One point for {each}. Marks are versions that began to decide."


def _rewards(found: Overview) -> Iterator[Series]:
    yield _line("served", [point.reward for point in found.points])
    if any(point.uniform.value is not None for point in found.points):
        yield Series("uniformly random actions", [point.uniform.value for point in found.points])


def _line(label: str, estimates: list[Estimate]) -> Series:
    lows, highs = [one.low for one in estimates], [one.high for one in estimates]
    return Series(label, [one.value for one in estimates], lows, highs)


def _shares(found: Overview) -> Iterator[Series]:
    totals = [sum(point.actions.values()) or 1 for point in found.points]
    for action in found.actions[:_LINES]:
        shares = [point.actions.get(action, 0) / total for point, total in zip(found.points, totals, strict=True)]
        yield Series(action, shares)
    if rest := found.actions[_LINES:]:
        others = [sum(point.actions.get(action, 0) for action in rest) for point in found.points]
        yield Series(f"{len(rest)} others", [count / total for count, total in zip(others, totals, strict=True)])


def _compared(found: Overview) -> Html:
    if not found.compared:
        inside = empty(
            "Nothing can be compared yet.",
            "Comparisons need decisions that an update has joined with their rewards; potstill update DIR runs one.",
        )
        return section("Compared with", inside)
    rows = [
        (
            value(line.name),
            line.basis,
            estimate(line.served),
            estimate(line.other),
            estimate(line.difference),
            tag("div", line.words, class_="text"),
        )
        for line in found.compared
    ]
    header = ("what else", "known by", "served", "the other", "difference", "verdict")
    note = "Reward per decision with 95% intervals, over this range."
    return section("Compared with", table(header, rows, caption="Comparisons", numeric=(2, 3, 4)), note=note)


def _updates(found: Overview) -> Html:
    if not found.updates:
        return section("Updates", empty("No update has run yet.", "Start the service with --update-every 10m."))
    header = ("began", "outcome", "version", "seconds", "joined", "late", "orphans", "why")
    rows = [_run(run) for run in found.updates]
    return section("Updates", table(header, rows, caption="Updates, newest first", numeric=(2, 3, 4, 5, 6)))


def _run(run: UpdateRun) -> tuple[Child, ...]:
    times = f" × {run.runs:,}" if run.runs > 1 else ""
    state = badge(run.outcome + times, _TONES.get(run.outcome, "plain"))  # type: ignore[arg-type]
    seconds = None if run.seconds is None else f"{run.seconds:,.1f}"
    return (
        when(run.began),
        state,
        run.version,
        seconds,
        f"{run.joined:,}",
        f"{run.late + run.too_late:,}",
        f"{run.orphans:,}",
        tag("div", value(run.why), class_="text"),
    )


VIEW = View("overview", "Overview", render, refresh=10)
