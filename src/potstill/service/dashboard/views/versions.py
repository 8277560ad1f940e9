"""Versions of the policy: what each has learnt, what was against it, and the buttons that change which one serves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from potstill.service.dashboard.html import Child, Html, join, tag
from potstill.service.dashboard.parts import (
    badge,
    bar,
    button,
    held,
    link,
    notice,
    number,
    pairs,
    section,
    table,
    url,
    value,
    when,
)
from potstill.service.dashboard.view import Call, View
from potstill.service.dashboard.views import compare
from potstill.service.reads import versions as data
from potstill.service.status import in_thread

_TONES: dict[str, Any] = {"serving": "good", "refused": "bad", "staged": "warn"}
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
    listed = msgspec.convert({"limit": asked.limit}, data.VersionsQuery)
    found = await in_thread(data.read_versions, call.service, listed)
    chosen = None
    if asked.version is not None:
        chosen = await in_thread(data.read_version, call.service, data.VersionQuery(version=asked.version))
    return join(
        tag("h1", "Versions"),
        tag("p", "Each update distils a version. The gates refuse one that is worse or unsound.", class_="lead"),
        [notice(fault, "bad") for fault in found.damage],
        _state(call, found),
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
    ask = f"The version that served before {found.serving} serves again, and is pinned. Updates stage their versions."
    yield button("Roll back", "admin/rollback", {}, ask=ask, danger=True, disabled=off)
    for mode, words in _MODES.items():
        if mode != found.mode:
            yield button(f"Mode {mode}", "admin/mode", {"mode": mode}, ask=words, disabled=not call.admin)


def _list(call: Call, found: data.VersionsReply, chosen: int | None) -> Html:
    header = (
        "version", "state", "published", "observations", "held-out KL", "against the one before", "trust",
        "reasons against it", "",
    )  # fmt: skip
    rows = [_row(call, one, found, current=one.version == chosen) for one in found.versions]
    more = None
    if found.more:
        more = tag("p", link("More versions", url(call.service.name, "versions", limit=1000)))
    shown = table(header, rows, caption="Versions", numeric=(0, 3, 4))
    note = "Held-out KL: how far the policy is from its teacher, in nats. Choose a version to see where it comes from."
    return section("All versions", shown, more, note=note)


def _row(call: Call, one: data.VersionSummary, found: data.VersionsReply, *, current: bool) -> tuple[Child, ...]:
    name = link(str(one.version), url(call.service.name, "versions", version=one.version), current=current)
    state = join(
        badge(one.state, _TONES.get(one.state, "plain")),
        None if one.current_problem else badge("other problem", "warn"),
    )
    compared = one.comparison
    trust = None if compared is None else tag("span", compared.grade, title=compared.sentence)
    reasons = tag("div", [tag("p", value(reason)) for reason in one.reasons])
    observations, kl = f"{one.observations:,}", number(one.kl, 2)
    return (
        name, state, when(one.published), observations, kl, _difference(compared), trust, reasons,
        _serve(call, one, found),
    )  # fmt: skip


def _difference(compared: data.ComparisonReply | None) -> str:
    if compared is None:
        return "–"
    words = f"{compared.difference:+.3g} ({compared.low:+.2g} to {compared.high:+.2g}) on v{compared.against}"
    return words.replace("-", "−")


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
    teacher = dict(one.teacher or {})
    known: list[tuple[Child, Child]] = [
        ("lineage", join(tag("strong", str(one.summary.version)), line)),
        ("teacher", value(str(teacher.pop("type", "none: it is uniform")))),
        *((f"– {name}", value(option)) for name, option in teacher.items() if option is not None),
        ("student", value(" × ".join(map(str, (one.student or {}).get("hidden", []))) or "linear")),
        ("labels", value((one.exactness or {}).get("kind", "–"))),
        ("policy file", f"{one.policy_bytes:,} bytes"),
    ]
    if one.seconds:
        known.append(("took", ", ".join(f"{step} {seconds:.1f} s" for step, seconds in one.seconds.items())))
    compared = one.summary.comparison
    return section(
        f"Version {one.summary.version}",
        None if compared is None else notice(compared.sentence, "good" if compared.grade == "good" else "warn"),
        pairs(known),
        _fidelity(one),
        _selection(one),
    )


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
        (when(one.time), one.event, one.version, value(one.by or "update"), value(one.note)) for one in found.changes
    ]
    shown = table(("time", "change", "version", "by", "reason"), rows, caption="Changes", numeric=(2,))
    return section("Journal", shown, note="Every change of what serves, with its author and reason.")


VIEW = View("versions", "Versions", render)
