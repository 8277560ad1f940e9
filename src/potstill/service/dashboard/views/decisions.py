"""Decisions one by one: the latest, those of a unit, and the whole story of one."""

from __future__ import annotations

from typing import Any

import msgspec

from potstill.service.dashboard.html import Child, Html, join, tag
from potstill.service.dashboard.parts import (
    badge,
    bar,
    code,
    empty,
    link,
    notice,
    number,
    pairs,
    percent,
    search,
    section,
    table,
    url,
    value,
    when,
)
from potstill.service.dashboard.view import Call, View
from potstill.service.http import Refusal
from potstill.service.reads import decisions as data

#: Characters of a value in the list.
SHORT = 40
_MODES = {
    "apprentice": "The caller decided; the propensity is that of the policy.",
    "log-only": "The fixed answer of mode log-only.",
    "fallback": "The fallback action: the policy could not decide, or the log was not writable.",
    "control": "The control arm of an experiment.",
    "design": "A point of the initial design.",
}


class _Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: str = ""
    unit: str = ""
    before: int | None = None


async def render(call: Call) -> Html:
    """One decision if its id is stated, otherwise the latest."""
    asked = call.asked(_Query)
    top = join(tag("h1", "Decisions"), _form(asked))
    if asked.id:
        return join(top, await _story(call, asked.id))
    query = msgspec.convert({"unit": asked.unit or None, "before": asked.before, "limit": 50}, data.DecisionsQuery)
    found = await data.read_decisions(call.service, query)
    if not found.decisions:
        return join(top, _nothing(call, asked))
    return join(top, _list(call, found), _older(call, asked, found))


def _form(asked: _Query) -> Html:
    return search(
        ("Id of a decision", tag("input", name="id", value=asked.id, maxlength=1000)),
        ("or unit", tag("input", name="unit", value=asked.unit, maxlength=1000)),
        label="Find",
    )


def _nothing(call: Call, asked: _Query) -> Html:
    if asked.unit or asked.before:
        return empty("No decision fits.", link("Show the latest decisions", url(call.service.name, "decisions")))
    example = code(f"POST /v1/{call.service.name}/decide")
    return empty(
        "No decision is logged yet.",
        join("Ask for one with ", example, "; ", link("the API", "/docs"), " has forms to try it."),
    )


def _list(call: Call, found: data.DecisionsReply) -> Html:
    header = ("time", "id", "unit", "action", "propensity", "version", "mode or arm", "reward", "")
    rows = [_row(call, one) for one in found.decisions]
    return table(header, rows, caption="Decisions, newest first", numeric=(4, 5, 7))


def _row(call: Call, one: data.DecisionSummary) -> tuple[Child, ...]:
    name = link(
        value(one.id, SHORT) if len(one.id) <= SHORT else tag("bdi", one.id[:SHORT] + "…"),
        url(call.service.name, "decisions", id=one.id),
    )
    unit = (
        None
        if one.unit is None
        else link(tag("bdi", one.unit[:SHORT]), url(call.service.name, "decisions", unit=one.unit))
    )
    how = one.arm or one.mode or ""
    reward = "–" if one.reward is None else number(one.reward)
    more = f"{one.rewards} rewards" if one.rewards > 1 else None
    where = badge("in the log", "warn") if one.log else None
    return (
        when(one.time),
        name,
        unit,
        value(_short(one.action), SHORT),
        f"{one.propensity:.3g}",
        one.policy,
        value(how, SHORT),
        reward,
        join(more, where),
    )


def _short(action: Any) -> Any:
    """An action for a list; the story of the decision has all digits of a number."""
    return float(f"{action:.6g}") if isinstance(action, float) else action


def _older(call: Call, asked: _Query, found: data.DecisionsReply) -> Html | None:
    if found.older is None:
        return None
    address = url(call.service.name, "decisions", unit=asked.unit or None, before=found.older)
    return tag("p", link("Older decisions", address), class_="row")


async def _story(call: Call, name: str) -> Html:
    """Everything that is known of one decision."""
    try:
        found = await data.read_decision(call.service, msgspec.convert({"id": name}, data.DecisionQuery))
    except (Refusal, msgspec.ValidationError) as refusal:
        back = link("Show the latest decisions", url(call.service.name, "decisions"))
        return empty(str(refusal), join("It may be in the log of another machine. ", back))
    return join(
        _verdict(found),
        [_request(one, n) for n, one in enumerate(found.decisions)],
        _choice(found),
        _rewards(found),
        _joined(found),
    )


def _verdict(found: data.DecisionReply) -> Html:
    tone: Any = "good" if found.audit.startswith("clean") else "bad" if found.audit.startswith("wrong") else "plain"
    return notice(join(tag("strong", "Audit: "), found.audit, "."), tone)


def _request(one: data.LoggedDecisionReply, n: int) -> Html:
    known: list[tuple[Child, Child]] = [
        ("id", value(one.id)),
        ("time", when(one.time)),
        ("unit", None if one.unit is None else value(one.unit)),
        ("arm", None if one.arm is None else value(one.arm)),
        ("eligible", None if one.eligible is None else value(one.eligible)),
        ("floor", None if one.floor is None else number(one.floor)),
        ("mode", None if one.mode is None else join(one.mode, ": ", _MODES.get(one.mode, ""))),
        ("policy's choice", None if one.would is None else value(one.would)),
        ("caller's propensity", None if one.own_propensity is None else number(one.own_propensity)),
        ("where", "in this machine's log, not in the lake yet" if one.log else "in the lake"),
    ]
    context = [(value(feature), value(given)) for feature, given in one.context.items() if given is not None]
    title = "Request" if n == 0 else f"Logged again under the same id ({n + 1})"
    note = (
        ""
        if n == 0
        else f"Action {one.action}, propensity {one.propensity:.4g}, version {one.policy}. The first by time counts."
    )
    shown = pairs([(name, given) for name, given in known if given is not None])
    return section(title, shown, tag("h3", "Context"), pairs(context), note=note or None)


def _choice(found: data.DecisionReply) -> Html | None:
    if not found.decisions:
        return None
    one = found.decisions[0]
    draws = ", ".join(f"{draw:.6f}" for draw in found.draws)
    taken = join(
        "Action ", tag("strong", value(one.action)), f", propensity {one.propensity:.6g}, by version {one.policy}."
    )
    rows = [
        (
            tag("strong", value(label)) if label == str(one.action) else value(label),
            bar(p),
            percent(p),
            f"{below:.4f} to {below + p:.4f}",
        )
        for label, p, below in zip(found.labels, found.probabilities, _below(found.probabilities), strict=True)
    ]
    note = "The policy's probabilities cannot be computed here."
    if len(found.draws) == 1:
        note = f"The draw of this id is {draws}: it falls into the range of the action that was drawn."
    elif draws:
        note = f"The draws of this id are {draws}: the first one chooses a range, the others the place within it."
    shown = (
        table(("action", "probability", "", "range of the draw"), rows, caption="Probabilities", numeric=(2, 3))
        if rows
        else None
    )
    return section("Choice", tag("p", taken), shown, note=note)


def _below(p: list[float]) -> list[float]:
    return [sum(p[:n]) for n in range(len(p))]


def _rewards(found: data.DecisionReply) -> Html:
    if not found.rewards:
        return section("Rewards", empty("No reward has come.", "Report one under the same id with POST reward."))
    rows = [
        (when(one.time), number(one.reward), _delay(one.delay), one.counts, value(one.key or ""),
         value(one.metrics) if one.metrics else None, badge("in the log", "warn") if one.log else None)
        for one in found.rewards
    ]  # fmt: skip
    header = ("time", "reward", "after", "counts", "key", "metrics", "")
    return section("Rewards", table(header, rows, caption="Rewards as they came", numeric=(1, 2)))


def _delay(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return (
        f"{seconds:.1f} s"
        if abs(seconds) < 120
        else f"{seconds / 60:.1f} min"
        if abs(seconds) < 7200
        else f"{seconds / 3600:.1f} h"
    )


def _joined(found: data.DecisionReply) -> Html:
    made = found.observation
    if made is None:
        soon = (
            join("It is final at ", when(found.final), "; the next update after that joins it.")
            if found.final
            else "No decision, nothing to join."
        )
        return section("Join", notice(soon))
    rule = f"; of several rewards, the {made.aggregate} counts" if made.aggregate and len(found.rewards) > 1 else ""
    how = f"reward {number(made.reward)}" if made.rewarded else f"no reward came, so the default: {number(made.reward)}"
    return section(
        "Join",
        notice(
            join(f"Joined by cut {made.cut}", *((" at ", when(made.made)) if made.made else ()), f": {how}{rule}."),
            "good",
        ),
    )


VIEW = View("decisions", "Decisions", render, deferred=True)
