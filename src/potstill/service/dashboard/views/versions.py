"""Versions of the policy: what each has learnt, what was against it, and the buttons that change which one serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from potstill.service.dashboard.html import Child, Html, join, tag
from potstill.service.dashboard.parts import (
    badge,
    bar,
    button,
    held,
    interval,
    link,
    notice,
    number,
    pairs,
    section,
    table,
    url,
    value,
    waiting,
    when,
)
from potstill.service.dashboard.view import Call, View
from potstill.service.dashboard.views import compare, fidelity
from potstill.service.reads import staging
from potstill.service.reads import versions as data
from potstill.service.status import in_thread

_TONES: dict[str, Any] = {"serving": "good", "refused": "bad", "staged": "warn"}
_GRADES = {"good": "trust it", "caution": "caution", "no": "unreliable"}
#: Seconds between two looks at an update that runs.
PAUSE = 2
_MODES = {
    "online": "The policy decides.",
    "apprentice": "Callers decide; what the policy would have done is logged beside it.",
    "log-only": "Every request is answered with the fallback action.",
}


class _Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: int = 20
    version: int | None = None
    first: int | None = None
    second: int | None = None
    part: str | None = None


async def render(call: Call) -> Html:
    """What serves, the versions, the one that is chosen, and the latest changes."""
    asked = call.asked(_Query)
    if asked.part == "compare" and asked.first is not None and asked.second is not None:
        return await compare.render(call, asked.first, asked.second)
    if asked.part == "fidelity" and asked.version is not None:
        return await fidelity.render(call, asked.version)
    listed = msgspec.convert({"limit": asked.limit}, data.VersionsQuery)
    found = await in_thread(data.read_versions, call.service, listed)
    begun = await in_thread(staging.read_staging, call.service)
    chosen = None
    if asked.version is not None:
        chosen = await in_thread(data.read_version, call.service, data.VersionQuery(version=asked.version))
    return join(
        tag("h1", "Versions"),
        tag("p", "Each update distils a version. The gates refuse one that is worse or unsound.", class_="lead"),
        [notice(fault, "bad") for fault in found.damage],
        _state(call, found),
        _running(call, begun),
        _list(call, found, asked.version),
        None if chosen is None else _details(call, chosen),
        compare.form(call, [one.version for one in found.versions if one.current_problem], asked.first, asked.second),
        _changes(found),
    )


def _state(call: Call, found: data.VersionsReply) -> Html:
    """What serves, who holds it, and the buttons that change that."""
    serving = "No version serves yet" if found.serving is None else f"Version {found.serving} serves"
    words = join(serving, f", mode {found.mode}. ", tag("span", _MODES.get(found.mode, ""), class_="soft"))
    lines: list[Html] = [notice(words, "good" if found.serving is not None else "bad")]
    if found.pinned is not None:
        who = held(found.pinned.by, found.pinned.reason, found.pinned.since)
        lines.append(notice(join("Pinned", who, ". Updates stage their versions."), "warn"))
    if found.paused is not None:
        who = held(found.paused.by, found.paused.reason, found.paused.since)
        lines.append(notice(join("Updates are paused", who, "."), "warn"))
    return join(lines, tag("div", [*_buttons(call, found)], class_="row"), _right(call))


def _running(call: Call, begun: staging.StagingReply) -> Html | None:
    """That an update runs, and another look in a moment."""
    if not begun.running:
        return None
    since = join(" since ", when(begun.since)) if begun.since else None
    again = {
        "hx_get": url(call.service.name, "versions"),
        "hx_trigger": f"load delay:{PAUSE}s",
        "hx_target": "#view",
    }
    words = tag("p", "An update runs", since, "… its version shows here when it is done.")
    return tag("div", words, class_="notice plain", role="status", **again)


def _right(call: Call) -> Html | None:
    if call.admin:
        return None
    return tag("p", "Changes need a token with the scope admin.", class_="soft")


def _buttons(call: Call, found: data.VersionsReply) -> Iterator[Html]:
    off = not call.admin or found.serving is None
    if found.pinned is None:
        ask = f"Version {found.serving} keeps serving. Updates go on, and stage their versions for you to promote."
        yield button("Pin", "admin/pin", {}, ask=ask, disabled=off)
    else:
        ask = "The next version that an update publishes serves."
        yield button("Release the pin", "admin/unpin", {}, ask=ask, disabled=off)
    if found.paused is None:
        ask = "No update is made until you resume. Decisions and rewards are logged as before."
        yield button("Pause updates", "admin/pause", {}, ask=ask, disabled=off)
    else:
        yield button("Resume updates", "admin/resume", {}, ask="Updates are made again.", disabled=off)
    ask = "An update runs now. Its version is staged: it does not serve until you apply it."
    yield button("Stage a version", "admin/stage", {}, ask=ask, disabled=off or found.paused is not None)
    ask = f"The version that served before {found.serving} serves again, and is pinned. Updates stage their versions."
    alone = not any(one.state == "served before" for one in found.versions) and not found.more
    yield button("Roll back", "admin/rollback", {}, ask=ask, danger=True, disabled=off or alone)
    for mode, words in _MODES.items():
        if mode != found.mode:
            yield button(f"Mode {mode}", "admin/mode", {"mode": mode}, ask=words, disabled=not call.admin)


def _list(call: Call, found: data.VersionsReply, chosen: int | None) -> Html:
    header = (
        "version", "state", "published", "observations", "held-out KL", "off-policy estimate", "against what served",
        "gates", "",
    )  # fmt: skip
    rows = [_row(call, one, found, current=one.version == chosen) for one in found.versions]
    more = None
    if found.more:
        more = tag("p", link("More versions", url(call.service.name, "versions", limit=1000)))
    shown = table(header, rows, caption="Versions", numeric=(3, 4, 5, 6))
    note = (
        "Held-out KL: how far the policy is from its teacher, in nats. Estimates: reward per decision with 95 % "
        "intervals; effective rows say how much the log knows. Choose a version to see where it comes from."
    )
    return section("All versions", shown, more, note=note)


def _row(call: Call, one: data.VersionSummary, found: data.VersionsReply, *, current: bool) -> tuple[Child, ...]:
    name = link(str(one.version), url(call.service.name, "versions", version=one.version), current=current)
    state = join(
        badge(one.state, _TONES.get(one.state, "plain")),
        None if one.current_problem else badge("other problem", "warn"),
    )
    observations, kl = f"{one.observations:,}", _kl(one.kl)
    return (
        name, state, when(one.published), observations, kl, *_estimates(one.comparison), _verdict(one),
        _serve(call, one, found),
    )  # fmt: skip


def _kl(kl: float | None) -> str:
    if kl is None:
        return "–"
    return f"{kl:.3f}" if kl == 0 or kl >= 0.0005 else "< 0.001"


def _estimates(compared: data.ComparisonReply | None) -> tuple[Child, Child]:
    """Off-policy estimate with its effective sample size, and the difference to the version that served."""
    if compared is None:
        return "–", "–"
    estimate = interval(compared.value, compared.value_low, compared.value_high)
    difference = interval(compared.difference, compared.low, compared.high, signed=True)
    known = None if compared.effective is None else f"{compared.effective:,.0f} effective rows of {compared.rows:,}"
    rows = known or f"on {compared.rows:,} rows"
    trust = f"version {compared.against}; {_GRADES.get(compared.grade, compared.grade)}"
    return _noted(estimate, rows), _noted(difference, trust)


def _noted(figure: str, about: str) -> Html:
    return join(figure, tag("span", about, class_="about soft"))


def _verdict(one: data.VersionSummary) -> Child:
    """What the gates said."""
    if one.reasons:
        return tag("div", [tag("p", value(reason)) for reason in one.reasons], class_="text")
    return "–" if one.kl is None else "passed"


def _serve(call: Call, one: data.VersionSummary, found: data.VersionsReply) -> Html | None:
    """The button that makes a version serve."""
    off, body = not call.admin or not one.current_problem, {"version": one.version}
    if one.state == "serving":
        return None
    if one.state == "served before":
        ask = f"Version {one.version} serves again in place of {found.serving}, and is pinned."
        return button("Return to it", "admin/rollback", {"to": one.version}, ask=ask, danger=True, disabled=off)
    if one.state == "refused":
        ask = f"The gates refused version {one.version}: {'; '.join(one.reasons)[:300]}. It serves nevertheless."
        return button("Apply nevertheless", "admin/promote", body, ask=ask, danger=True, disabled=off)
    ask = f"Version {one.version} serves in place of {found.serving}. A pin is released."
    return button("Apply", "admin/promote", body, ask=ask, disabled=off)


def _details(call: Call, one: data.VersionReply) -> Html:
    """Where a version comes from, and how well it imitates its teacher."""
    ancestors = [link(f"{number}", url(call.service.name, "versions", version=number)) for number in one.ancestors]
    line: list[Child] = []
    for each in ancestors:
        line += [" ← ", each]
    teacher, student = dict(one.teacher or {}), one.student or {}
    known: list[tuple[Child, Child]] = [
        ("lineage", join(tag("strong", str(one.summary.version)), line)),
        ("decides by", value(one.decides)),
        ("teacher", value(str(teacher.pop("type", "none")))),
        *((f"– {name}", value(option)) for name, option in teacher.items() if option is not None),
        *(
            [("student", value(_student(student))), ("labels", value((one.exactness or {}).get("kind", "–")))]
            if one.student
            else []
        ),
        ("policy file", f"{one.policy_bytes:,} bytes"),
    ]
    if one.seconds:
        known.append(("took", ", ".join(f"{step} {seconds:.2g} s" for step, seconds in one.seconds.items())))
    compared = one.summary.comparison
    return section(
        f"Version {one.summary.version}",
        None if compared is None else notice(compared.sentence, "good" if compared.grade == "good" else "warn"),
        pairs(known),
        _fidelity(one),
        waiting(url(call.service.name, "versions", part="fidelity", version=one.summary.version), whole=False)
        if one.fidelity
        else None,
        _selection(one),
    )


def _student(config: Mapping[str, Any]) -> str:
    """The shape of a student, in words."""
    hidden = " × ".join(map(str, config.get("hidden", [])))
    shape = f"hidden layers of {hidden} units" if hidden else "linear"
    return f"{shape}, trained on masks of eligible actions" if config.get("masked") else shape


#: What is measured of a version's fidelity: title, and what it means.
_MEASURED = {
    "kl_mean": ("mean KL", "divergence from the teacher in nats, mean over held-out contexts"),
    "kl_p95": ("KL, 95th percentile", "in 5 % of contexts it is larger"),
    "tv_mean": ("mean total variation", "share of decisions that differ from the teacher's"),
    "tv_max": ("largest total variation", "in the worst held-out context"),
    "smallest_propensity": ("smallest propensity", "no logged weight is larger than its inverse"),
    "cost": ("cost of imitation", "reward per decision that imitation costs, by the teacher's mean rewards"),
    "regret_price": ("price of imitation", "the most that imitation can cost per decision"),
    "floor_tv": ("moved by the floor", "share of decisions that the floor changes"),
    "floor_cost": ("cost of the floor", "reward per decision, by the teacher's mean rewards"),
}


def _fidelity(one: data.VersionReply) -> Html | None:
    if not one.fidelity:
        return None
    rows = [
        (title, number(one.fidelity[name]), tag("span", text, class_="soft"))
        for name, (title, text) in _MEASURED.items()
        if isinstance(one.fidelity.get(name), int | float)
    ]
    rows += [
        (
            f"total variation among {part['actions']} eligible",
            number(part["tv_mean"]),
            tag("span", f"at most {part['tv_max']:.2g}, over random sets of eligible actions", class_="soft"),
        )
        for part in one.fidelity.get("eligible", ())
    ]
    contexts = one.fidelity.get("contexts")
    about = tag("p", f"Measured on {contexts:,} held-out contexts.", class_="note") if contexts else None
    shown = table(("measure", "value", "meaning"), rows, caption="Fidelity", numeric=(1,))
    return join(tag("h3", "Fidelity to its teacher"), about, shown)


def _selection(one: data.VersionReply) -> Html | None:
    if not one.selection:
        return None
    rows = [
        (value(name), bar(known.get("weight", 0.0), f"weight {known.get('weight', 0.0):.1%}"),
         f"{known.get('weight', 0.0):.1%}", number(known.get("rmse")))
        for name, known in sorted(one.selection.items(), key=lambda item: -item[1].get("weight", 0.0))
    ]  # fmt: skip
    header = ("candidate", "weight", "", "error (RMSE)")
    note = tag("p", "The teacher weighs its candidates by how well they predict held-out rewards.", class_="note")
    return join(tag("h3", "Selection"), note, table(header, rows, caption="Candidates of the teacher", numeric=(2, 3)))


def _changes(found: data.VersionsReply) -> Html:
    rows = [
        (when(one.time), one.event, one.version, "–" if one.serving is None else one.serving,
         value(one.by or "update"), tag("div", value(one.note), class_="text"))
        for one in found.changes
    ]  # fmt: skip
    header = ("time", "change", "version", "serves then", "by", "reason")
    shown = table(header, rows, caption="Changes", numeric=(2, 3))
    return section("Journal", shown, note="Every change of what serves, with its author and reason.")


VIEW = View("versions", "Versions", render)
