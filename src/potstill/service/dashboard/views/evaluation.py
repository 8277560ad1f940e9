"""Evaluate and apply: what each policy that could serve would have earned, and the button that makes it serve."""

from __future__ import annotations

from typing import Any

import msgspec

from potstill.service.dashboard.html import Child, Html, join, tag
from potstill.service.dashboard.parts import (
    badge,
    bar,
    between,
    button,
    empty,
    interval,
    notice,
    number,
    section,
    table,
    url,
    value,
    when,
)
from potstill.service.dashboard.view import Call, View
from potstill.service.reads import evaluation as data
from potstill.service.status import in_thread

_KINDS = {
    "logged": "the mean reward of the log",
    "serving": "the version that serves",
    "candidate": "a version that could serve",
    "uniform": "every action alike",
    "fixed": "always the same action",
}
_TONES: dict[str, Any] = {"good": "good", "caution": "warn", "no": "bad"}
_GRADES = {"good": "trust it", "caution": "caution", "no": "unreliable"}
#: Differences below this share of the reward are none.
NOTHING = 1e-3
#: Seconds between two looks at an evaluation that runs.
PAUSE = 2


class _Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


async def render(call: Call) -> Html:
    """The last evaluation, its progress while one runs, and the buttons."""
    call.asked(_Query)
    found = await in_thread(data.read_evaluation, call.service)
    lead = "Off-policy evaluation: what each policy would have earned on the decisions that were logged."
    return join(
        tag("h1", "Evaluate and apply"),
        tag("p", lead, class_="lead"),
        _state(call, found),
        _begin(call, found),
        _result(call, found.result),
    )


def _state(call: Call, found: data.EvaluationReply) -> Html | None:
    if found.state == "running":
        words = f"Evaluating {found.step} ({found.done + 1} of {found.of})" if found.of else "Reading the log"
        bar_ = tag("progress", max=max(found.of, 1), value=found.done, aria_label="progress")
        again = {
            "hx_get": url(call.service.name, "evaluate"),
            "hx_trigger": f"load delay:{PAUSE}s",
            "hx_target": "#view",
        }
        return tag("div", tag("p", words, "… ", bar_), class_="notice plain", role="status", **again)
    if found.state == "failed":
        return notice(f"The last evaluation failed: {found.error}", "bad")
    if found.state == "interrupted":
        return notice("The last evaluation was interrupted; begin another one.", "warn")
    return None


def _begin(call: Call, found: data.EvaluationReply) -> Html:
    ask = "It reads all observations, at low priority, and takes from seconds to some minutes. Nothing is changed."
    off = not call.admin or found.state == "running"
    note = None if call.admin else tag("span", "Needs a token with the scope admin.", class_="soft")
    return tag("div", button("Evaluate now", "admin/evaluate", {}, ask=ask, disabled=off), note, class_="row")


def _result(call: Call, found: data.EvaluationResult | None) -> Html:
    if found is None:
        then = "Press Evaluate now. It needs observations: decisions whose reward window has closed, after an update."
        return empty("Nothing was evaluated yet.", then)
    # Intervals of unreliable estimates are wide: they are cut off at the ends of the others.
    sure = [row for row in found.rows if row.grade != "no"] or found.rows
    ends = [end for row in sure for end in (row.low, row.high, row.value) if end is not None]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    header = (
        "policy",
        f"from {between(low, high)}",
        "reward per decision",
        "against serving",
        "effective rows",
        "trust",
        "",
    )
    rows = [_row(call, row, low, high, found.decisions) for row in found.rows]
    shown = table(header, rows, caption="Estimates", numeric=(2, 3, 4))
    left_out = [f" {each}" for each in found.left_out]
    by = join(", asked for by ", value(found.by)) if found.by else None
    level = f"{100 * found.level:.0f} %"
    note = join(
        f"Rewards per decision with {level} intervals, on {found.decisions:,} decisions. Effective rows: decisions of "
        "its own that would say as much. Made ", when(found.ended), by, ".", left_out,
    )  # fmt: skip
    return section("Estimates", _winner(found), shown, note=note)


def _winner(found: data.EvaluationResult) -> Html:
    """Which candidate is surely better than the serving version, in words."""
    better = [
        row for row in found.rows
        if row.kind == "candidate" and row.grade != "no" and row.difference_low is not None and row.difference_low > 0
    ]  # fmt: skip
    if better:
        best = max(better, key=lambda row: row.difference or 0.0)
        return notice(f"{_named(best)} earns more than the serving version: {_change(best)} per decision.", "good")
    fixed = [row for row in found.rows if row.kind in ("fixed", "uniform") and row.difference_low is not None]
    ahead = [row for row in fixed if (row.difference_low or 0.0) > 0 and row.grade != "no"]
    if ahead:
        words = f"{_named(ahead[0])} earns more than the serving version: {_change(ahead[0])} per decision."
        return notice(words, "warn")
    return notice("No candidate is surely better than the serving version.")


def _named(row: data.EvaluationRow) -> str:
    return f"{row.name[:1].upper()}{row.name[1:]}"


def _row(call: Call, row: data.EvaluationRow, low: float, high: float, rows: int) -> tuple[Child, ...]:
    def place(number: float | None) -> float | None:
        return None if number is None else (number - low) / (high - low) if high > low else 0.5

    about = tag("span", _KINDS.get(row.kind, ""), class_="about soft")
    name = tag("div", tag("strong", value(row.name)), about, class_="name")
    shape = bar(
        place(row.value) or 0.0, f"{row.name}: {number(row.value)}", place(row.low), place(row.high), point=True
    )
    trust = None if row.kind == "logged" else _trust(row)
    figure = interval(row.value, row.low, row.high)
    return (name, shape, figure, _change(row), _effective(row, rows), trust, _apply(call, row))


def _effective(row: data.EvaluationRow, rows: int) -> Child:
    if row.effective is None:
        return f"{rows:,}"
    return f"{min(row.effective, rows):,.0f}"


def _trust(row: data.EvaluationRow) -> Html:
    grade = badge(_GRADES.get(row.grade, row.grade), _TONES.get(row.grade, "plain"))
    return tag("details", tag("summary", grade), tag("p", row.sentence, class_="soft")) if row.sentence else grade


def _change(row: data.EvaluationRow) -> str:
    if row.difference is None or row.difference_low is None or row.difference_high is None:
        return "–"
    if max(map(abs, (row.difference, row.difference_low, row.difference_high))) <= NOTHING * abs(row.value or 0.0):
        return "about 0"
    return interval(row.difference, row.difference_low, row.difference_high, signed=True)


def _apply(call: Call, row: data.EvaluationRow) -> Html | None:
    if row.kind != "candidate" or row.version is None:
        return None
    ask = f"Version {row.version} serves, if the gates have nothing against it. A pin is released."
    return button("Apply", "admin/promote", {"version": row.version, "gates": True}, ask=ask, disabled=not call.admin)


VIEW = View("evaluate", "Evaluate", render)
