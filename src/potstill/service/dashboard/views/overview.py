"""Overview: what serves, what arrives, what is earned, and whether all is well."""

from __future__ import annotations

from collections.abc import Iterator

from potstill.events import in_words as lasting
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
from potstill.service.dashboard.views.shown import FEWEST_POINTS, estimate, findings, marks, part_start, ranges
from potstill.service.reads import insights
from potstill.service.status import in_thread
from potstill.spaces import ActionSpace, Continuous
from potstill.summaries import Estimate, Overview, Point, UpdateRun

_TONES = {"published": "good", "failed": "bad", "refused": "warn"}
#: Actions with a line of their own in a chart.
_LINES = 8
#: Why joins could not use a reward, in words.
_UNUSED = {"late": "after their window", "too_late": "after the join", "orphan": "of no known decision"}


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
        _series(found, name, call.problem.actions),
        _compared(found),
        _updates(found),
    )


def _figures(found: Overview) -> Html:
    serving = "none" if found.version is None else f"version {found.version}"
    unused = sum(found.unused.values())
    about = ", ".join(f"{count:,} {_UNUSED.get(reason, reason)}" for reason, count in found.unused.items() if count)
    return cards(
        card("serving", serving, join(value(found.decides or "no usable policy"), ", since ", when(found.since))),
        card("mode", found.mode, None if found.experiment is None else value(f"experiment {found.experiment}")),
        card("decisions", f"{found.decisions:,}", _lately(found, [point.decisions for point in found.points])),
        card("rewards", f"{found.rewards:,}", _lately(found, [point.rewards for point in found.points])),
        card("joined", f"{found.joined:,}", f"{found.rewarded:,} with a reward, {found.pending:,} pending"),
        card("rewards not used", f"{unused:,}", about or "all rewards found their decision in time"),
        card("waiting in the log", f"{found.lag_seconds:,.0f} s", "age of the oldest event that is not in the lake"),
        _last_update(found),
    )


def _lately(found: Overview, rates: list[float]) -> Child:
    """The rate of the last point, from its start on, if it reaches up to now."""
    if not rates or found.points[-1].time + found.width < found.time - found.width:
        return f"none in the last {lasting(found.width)}"
    return join(f"{number(rates[-1])} per minute since ", when(found.points[-1].time))


def _last_update(found: Overview) -> Html:
    run = found.update
    if run is None:
        return card("last update", "none yet", "potstill update DIR runs one")
    ended: Child = join(when(run.ended or run.began), "" if found.due is None else ", next ", when(found.due))
    return card("last update", run.outcome, ended)


def _series(found: Overview, problem: str, space: ActionSpace) -> Html:
    if not found.points:
        return empty(
            "No decision is in the lake in this range.",
            f"A decision shows here within seconds: POST /v1/{problem}/decide, or choose a longer range.",
        )
    if len(found.points) < FEWEST_POINTS:
        return empty("One point is no line yet.", "Wait a few minutes, or choose a shorter range.")
    times, shown = _grid(found)
    x = [time / 1e6 for time in times]
    places = marks(found, x[-1])
    number_of = isinstance(space, Continuous)
    rates = [
        Series("decisions", [point.decisions if point else 0.0 for point in shown]),
        Series("rewards", [point.rewards if point else 0.0 for point in shown]),
    ]
    charts = [
        chart(
            "Mean reward of joined decisions, with 95 % intervals",
            x, list(_rewards(found, shown)), marks=places, unit="reward per decision",
        ),
        chart("Decisions and rewards per minute", x, rates, marks=places, unit="per minute"),
        chart(
            f"Shares of {space.name}" if isinstance(space, Continuous) else "Shares of actions",
            x, list(_shares(found, shown, space)), marks=places, unit="share of decisions", stacked=True,
            ordered=number_of,
        ),
    ]  # fmt: skip
    return section("Over time", tag("div", charts, class_="charts"), note=_note(found))


def _grid(found: Overview) -> tuple[list[int], list[Point | None]]:
    """Every place of the series from the first point up to now, and its point; None where nothing happened."""
    points = {point.time: point for point in found.points}
    times = [*range(found.points[0].time, max(found.points[-1].time, found.end - found.width) + 1, found.width)]
    return times, [points.get(time) for time in times]


def _note(found: Overview) -> str:
    return f"One point for {lasting(found.width)}. Marks are versions that began to decide."


def _rewards(found: Overview, shown: list[Point | None]) -> Iterator[Series]:
    yield _line("served", [point.reward if point else Estimate() for point in shown])
    if any(point.uniform.value is not None for point in found.points):
        yield Series("uniformly random actions", [point.uniform.value if point else None for point in shown])


def _line(label: str, estimates: list[Estimate]) -> Series:
    lows, highs = [one.low for one in estimates], [one.high for one in estimates]
    return Series(label, [one.value for one in estimates], lows, highs)


def _shares(found: Overview, shown: list[Point | None], space: ActionSpace) -> Iterator[Series]:
    def shares(actions: list[str]) -> list[float | None]:
        return [
            sum(point.actions.get(action, 0) for action in actions) / sum(point.actions.values())
            if point and point.actions
            else None
            for point in shown
        ]

    if isinstance(space, Continuous):  # all parts of its scale, in their order
        for part in sorted(found.actions, key=part_start):
            yield Series(part, shares([part]))
        return
    for action in found.actions[:_LINES]:
        yield Series(action, shares([action]))
    if rest := found.actions[_LINES:]:
        yield Series(f"{len(rest)} others", shares(rest))


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
    note = "Reward per decision with 95 % intervals, over this range."
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
