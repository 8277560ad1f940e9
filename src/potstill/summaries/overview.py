"""The overview of a problem: what serves, what arrives, what is earned, and whether all is well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from potstill.events import RewardTotals
from potstill.summaries.change import Change, find_change
from potstill.summaries.compare import Line, compare
from potstill.summaries.findings import Facts, Finding, findings
from potstill.summaries.points import Point, Span, points, total_of
from potstill.summaries.series import DecisionSummary, ObservationSummary, RewardSummary
from potstill.summaries.updates import UpdateHistory, UpdateRun

#: Hours that an overview shows unless asked otherwise.
HOURS = 24.0
#: Updates of an overview.
UPDATES = 20


class Inputs(NamedTuple):
    """Stored summaries of a problem."""

    decisions: DecisionSummary
    rewards: RewardSummary
    observations: ObservationSummary
    totals: RewardTotals
    updates: UpdateHistory

    @property
    def finest(self) -> int:
        """Time up to which any series reaches."""
        return max(self.decisions.newest, self.rewards.newest, self.observations.newest)


class Service(NamedTuple):
    """What a worker knows of itself; the other attributes are those of `Facts`.

    Attributes:
        version: The serving version; None if there is none.
        decides: What it decides by, in words.
        since: Since when it serves, in microseconds since 1970.
        fallback: The configured fallback action, as text.
        experiment: State of the experiment, in words.
    """

    problem: str
    mode: str
    version: int | None
    decides: str | None
    since: int
    fallback: str | None
    experiment: str | None
    log_fault: str | None
    mode_fault: str | None
    lag_seconds: float
    pinned: str | None
    paused: str | None
    window_seconds: int
    notices: list[str]


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """When a version began to decide, in microseconds since 1970, UTC."""

    time: int
    version: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """The overview of a problem. Times are microseconds since 1970, UTC.

    Attributes:
        time: When it was made.
        findings: What is well and what is not, the worst first.
        mode: Mode of the service.
        version: The serving version.
        decides: What it decides by, in words.
        since: Since when it serves.
        experiment: State of the experiment.
        lag_seconds: Age of this machine's oldest event that is not in the lake.
        decisions: Decisions in the lake.
        rewards: Rewards in the lake.
        joined: Decisions that are joined with their rewards.
        rewarded: Number of those with a reward.
        pending: Decisions that the last update found not final yet.
        unused: Rewards that joins could not use, by reason.
        update: The last update.
        due: When the next one is due.
        updates: The last updates, newest first.
        start: Where the series begins.
        end: Where it ends.
        width: Width of a point.
        points: The series, oldest first.
        marks: Versions that began to decide in that time.
        actions: Labels of the actions, in order.
        compared: What serves, compared with what else could be done.
        change: The most likely change of the mean reward.
    """

    time: int
    findings: list[Finding]
    mode: str
    version: int | None
    decides: str | None
    since: int
    experiment: str | None
    lag_seconds: float
    decisions: int
    rewards: int
    joined: int
    rewarded: int
    pending: int
    unused: Mapping[str, int]
    update: UpdateRun | None
    due: int | None
    updates: list[UpdateRun]
    start: int
    end: int
    width: int
    points: list[Point]
    marks: list[Mark]
    actions: list[str]
    compared: list[Line]
    change: Change | None


def overview(inputs: Inputs, service: Service, now: int, hours: float | None = HOURS) -> Overview:
    """The overview from summaries.

    Args:
        inputs: Summaries of the workspace.
        service: What the worker knows.
        now: Microseconds since 1970, UTC.
        hours: How much of the series; None for everything.
    """
    decisions, observations, updates = inputs.decisions, inputs.observations, inputs.updates
    span = Span.of(now, hours, decisions, inputs.finest)
    change = find_change([(start, cell.joined) for start, _, cell in observations.series(span.start)])
    shown = points(span, decisions, inputs.rewards, observations)
    last, finished = updates.last, [run for run in updates.runs if run.ended is not None]
    return Overview(
        time=now,
        findings=findings(_facts(inputs, service, now, change)),
        mode=service.mode,
        version=service.version,
        decides=service.decides,
        since=service.since,
        experiment=service.experiment,
        lag_seconds=service.lag_seconds,
        decisions=decisions.total.decisions,
        rewards=inputs.rewards.total.rewards.n,
        joined=observations.total.joined.n,
        rewarded=observations.total.rewarded,
        pending=finished[-1].pending if finished else 0,
        unused=inputs.totals.unused,
        update=last,
        due=None if last is None else last.due,
        updates=list(updates.runs[-UPDATES:][::-1]),
        start=span.start,
        end=span.end,
        width=span.width,
        points=shown,
        marks=[
            Mark(time=total.first, version=version)
            for version, total in decisions.versions.items()
            if span.start <= total.first <= span.end
        ],
        actions=_actions(shown),
        compared=compare(total_of(span, observations), service.fallback),
        change=change,
    )


def _facts(inputs: Inputs, service: Service, now: int, change: Change | None) -> Facts:
    recent = points(
        Span.of(now, 1.0, inputs.decisions, inputs.finest), inputs.decisions, inputs.rewards, inputs.observations
    )
    stated: dict[str, Any] = {name: value for name, value in service._asdict().items() if name in Facts._fields}
    return Facts(
        **stated,
        now=now,
        has_policy=service.version is not None,
        runs=inputs.updates.runs,
        decisions=inputs.decisions,
        observations=inputs.observations,
        recent=recent,
        change=change,
    )


def _actions(shown: list[Point]) -> list[str]:
    """Labels of actions, most frequent first."""
    counts: dict[str, int] = {}
    for point in shown:
        for action, number in point.actions.items():
            counts[action] = counts.get(action, 0) + number
    return sorted(counts, key=lambda action: (-counts[action], action))
