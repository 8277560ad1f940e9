"""Apprentice: how close the policy is to the caller's own logic, and whether it is ready to go live."""

from __future__ import annotations

from potstill.service.dashboard.html import Child, Html, join, tag
from potstill.service.dashboard.parts import (
    Series,
    Tone,
    bar,
    between,
    button,
    card,
    cards,
    chart,
    empty,
    notice,
    number,
    percent,
    reward,
    section,
    table,
    value,
    when,
)
from potstill.service.dashboard.view import Call, View
from potstill.service.dashboard.views.shown import FEWEST_POINTS, marks, ranges
from potstill.service.reads import insights
from potstill.service.status import in_thread
from potstill.summaries import ApprenticeReport, Estimate, Overview, Ready

_TONES: dict[Ready, Tone] = {"yes": "good", "not yet": "warn", "no": "bad", "no data": "plain"}


async def render(call: Call) -> Html:
    """The report of the last update, and agreement over time."""
    asked = call.asked(insights.RangeQuery)
    report = await in_thread(insights.apprentice_of, call.service)
    found = await in_thread(insights.overview_of, call.service, asked)
    agreed = any(point.agreement is not None for point in found.points)
    if not report.rows and not agreed:
        return join(tag("h1", "Apprentice"), _nothing(found, call))
    return join(
        tag("h1", "Apprentice"),
        _verdict(report, found, call),
        _figures(report),
        _over_time(found, call, asked.hours),
        _by(report),
    )


def _nothing(found: Overview, call: Call) -> Html:
    if found.mode == "apprentice":
        return empty(
            "No decision of mode apprentice is in the lake yet.",
            "Send your own action with each request: the policy says what it would have done, and learns.",
        )
    return empty(
        "This problem has no decisions of mode apprentice.",
        join(
            "In mode apprentice your own choices are carried out, and compared with the policy's. ",
            _mode("Change to apprentice", "apprentice", "From now on every request must state your own action.", call),
        ),
    )


def _verdict(report: ApprenticeReport, found: Overview, call: Call) -> Html:
    live = None
    if found.mode == "apprentice":
        live = tag("p", _mode("Go live", "online", "From now on the policy decides in place of your own logic.", call))
    words: Child = join(tag("strong", "Ready to go live? "), report.words, " ", tag("span", report.then, class_="soft"))
    return join(notice(words, _TONES[report.ready]), live)


def _mode(label: str, mode: str, ask: str, call: Call) -> Html | None:
    return button(label, "admin/mode", {"mode": mode}, ask=ask) if call.admin else None


def _figures(report: ApprenticeReport) -> Html:
    agreement = report.agreement
    share = agreement.value or 0.0
    shown = [
        card("decisions", f"{report.rows:,}", join("the latest that are joined, as of ", when(report.made))),
        card(
            "agreement",
            percent(agreement.value),
            join(bar(share, f"agreement {share:.0%}", agreement.low, agreement.high), "the policy would do the same"),
        ),
        card("reward achieved", percent(report.achieved), "of your reward comes from choices that it shares"),
        card("your mean reward", number(report.reward.value), _around(report.reward)),
        card("where you agree", number(report.agreed_reward.value), _around(report.agreed_reward)),
    ]
    if report.policy is not None and report.gain is not None:
        shown += [
            card("the policy's reward", number(report.policy.value), f"off-policy, {_around(report.policy)}"),
            card("difference", number(report.gain.value), _around(report.gain)),
        ]
    else:
        needs = f"needs the propensity of your own choices: {percent(report.stated)} of decisions state it"
        shown.append(card("off-policy estimate", "–", needs))
    return cards(*shown)


def _around(found: Estimate) -> str:
    return f"95 % interval {between(found.low, found.high)}"


def _over_time(found: Overview, call: Call, hours: float) -> Html:
    choice = ranges(call.service.name, VIEW.name, hours)
    points = [point for point in found.points if point.agreement is not None]
    if len(points) < FEWEST_POINTS:
        return section("Over time", choice, empty("Too few points to draw in this range.", "Choose another range."))
    x = [point.time / 1e6 for point in points]
    line = Series("agreement", [point.agreement for point in points])
    title = "Share of decisions in which the policy agrees"
    drawn = chart(title, x, [line], marks=marks(found, x[-1]), unit="share of decisions")
    return section("Over time", choice, drawn)


def _by(report: ApprenticeReport) -> Html | None:
    if not report.segments:
        return None
    header = ("feature", "value", "decisions", "agreement", "", "your reward", "where you agree")
    rows = [
        (
            tag("div", value(one.feature), class_="name"),
            tag("div", value(one.value), class_="name"),
            f"{one.rows:,}",
            percent(one.agreement),
            bar(one.agreement),
            reward(one.reward),
            reward(one.agreed_reward),
        )
        for one in report.segments
    ]
    listed = table(header, rows, caption="Agreement by segment", numeric=(2, 3, 5, 6))
    return section("By segment", listed, note="Where the policy and you differ, and what your choices earned there.")


VIEW = View("apprentice", "Apprentice", render, refresh=30)
