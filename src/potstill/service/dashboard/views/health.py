"""Health: is the log what the policies say, do all actions get their share, and has the reward changed?"""

from __future__ import annotations

from potstill.service.dashboard.html import Child, Html, join, tag
from potstill.service.dashboard.parts import (
    Series,
    badge,
    bar,
    card,
    cards,
    chart,
    empty,
    percent,
    reward,
    section,
    table,
    value,
    when,
)
from potstill.service.dashboard.view import Call, View
from potstill.service.dashboard.views.shown import FEWEST_POINTS, findings, part_start, ranges
from potstill.service.reads import insights
from potstill.service.status import in_thread
from potstill.spaces import ActionSpace, Continuous
from potstill.summaries import Change, Health, HealthReport, VersionHealth


async def render(call: Call) -> Html:
    """The health of a problem's log."""
    asked = call.asked(insights.RangeQuery)
    found = await in_thread(insights.health_of, call.service, asked)
    return join(
        tag("h1", "Health"),
        findings(found.findings),
        None if found.report is None else _audit(found.report),
        ranges(call.service.name, VIEW.name, asked.hours),
        _actions(found, call.problem.actions),
        _changes(found),
        None if found.report is None else _versions(found.report),
    )


def _audit(report: HealthReport) -> Html:
    return cards(
        card("decisions audited", f"{report.checked:,}", join("the latest, as of ", when(report.made))),
        card("propensities that differ", f"{report.propensities:,}", "from those that the policy gives"),
        card("actions that differ", f"{report.actions:,}", "from the draw of the decision's id"),
        card("not checkable", f"{report.missing + report.unfit:,}", "the version or the context does not fit"),
    )


def _actions(found: Health, space: ActionSpace) -> Html:
    if not found.shares:
        return section("Actions", empty("No decision is in the lake in this range.", "Choose a longer range."))
    x = [point.time / 1e6 for point in found.entropy]
    line = Series("entropy", [point.entropy for point in found.entropy])
    actions, label = found.actions, "action"
    if isinstance(space, Continuous):  # parts of its scale, in their order
        actions, label = sorted(actions, key=lambda one: part_start(one.action)), space.name
    rows = [
        (value(one.action), bar(one.share), percent(one.share), _points(one.trend),
         f"{one.entropy:.3f}", _signed(one.entropy_trend))
        for one in actions
    ]  # fmt: skip
    title = "Entropy of the shares of actions"
    drawn = chart(title, x, [line], unit="entropy, 1 is uniform") if len(x) >= FEWEST_POINTS else None
    trend = "" if found.trend is None else f" It changed by {_signed(found.trend)} from the first half to the second."
    note = (
        f"1: all actions are taken equally often. 0: always the same.{trend} Trends compare the second half of this "
        "range with the first."
    )
    header = (label, "share", "", "trend", "part of the entropy", "trend")
    return section(
        "Actions", drawn, table(header, rows, caption="Shares of actions", numeric=(2, 3, 4, 5)), note=note
    )  # fmt: skip


def _points(change: float | None) -> str:
    """A change of a share, in percentage points."""
    return "–" if change is None else f"{100 * change:+.1f} points".replace("-", "−")


def _signed(change: float | None) -> str:
    return "–" if change is None else f"{change:+.3f}".replace("-", "−")


def _changes(found: Health) -> Html:
    rows = [_change("all decisions", found.reward_change)] if found.reward_change is not None else []
    rows += [_change(action, change) for action, change in found.per_action.items()]
    if not rows:
        inside = empty("There are too few rewards to tell.", "A change needs 100 joined decisions on either side.")
        return section("Changes of the reward", inside)
    header = ("of", "most likely at", "before", "after", "p-value", "")
    note = (
        "The most likely change of the mean, with a p-value corrected for having looked everywhere. The mean of an "
        "action also changes when a policy learns where to take it."
    )
    listed = table(header, rows, caption="Changes of the reward", numeric=(2, 3, 4))
    return section("Changes of the reward", listed, note=note)


def _change(name: str, change: Change) -> tuple[Child, ...]:
    state = badge("chance explains it", "good")
    if change.alarm:
        state = badge("rose", "good") if change.after > change.before else badge("fell", "warn")
    p = "< 0.0001" if change.p < 0.0001 else f"{change.p:.4f}"
    return value(name), when(change.time), reward(change.before), reward(change.after), p, state


def _versions(report: HealthReport) -> Html | None:
    if not report.versions:
        return None
    header = ("version", "decisions", "entropy", "largest deviation", "p-value", "")
    rows = [_version(one) for one in report.versions]
    note = "Actions taken beside the sum of their propensities. A mismatch means that decisions are lost or repeated."
    listed = table(header, rows, caption="Sample ratios", numeric=(1, 2, 4))
    return section("Sample ratio of each version", listed, note=note)


def _version(one: VersionHealth) -> tuple[Child, ...]:
    entropy = "–" if one.entropy is None else f"{one.entropy:.3f}"
    worst = max(one.actions, key=lambda action: abs(action.z), default=None)
    if worst is None:
        return one.version, f"{one.rows:,}", entropy, "–", "–", badge("too few decisions to tell")
    about = join(value(worst.action), f": {worst.taken:,}, expected {worst.expected:,.0f} ({worst.z:+.1f} sd)")
    state = badge("mismatch", "bad") if one.broken else badge("as expected", "good")
    return one.version, f"{one.rows:,}", entropy, about, f"{one.p:.3f}", state


VIEW = View("health", "Health", render, refresh=30)
