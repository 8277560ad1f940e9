"""Versions of the policy: which one serves, what each has learnt, and what was against it."""

from __future__ import annotations

from potstill.registry import Version
from potstill.service.dashboard.html import Child, Html, join, tag
from potstill.service.dashboard.parts import badge, number, table, value, when
from potstill.service.dashboard.view import Call, View
from potstill.service.status import in_thread


async def render(call: Call) -> Html:
    """All versions."""
    found = await in_thread(call.service.workspace.registry.versions)
    header = ("version", "state", "published", "parent", "observations", "held-out KL", "reasons against it")
    listed = table(header, [_row(one) for one in reversed(found)], caption="Versions", numeric=(0, 3, 4, 5))
    return join(tag("h1", "Versions"), listed)


def _row(one: Version) -> tuple[Child, ...]:
    state = badge(one.state, "good" if one.state == "serving" else "plain")
    reasons = join([value(reason) for reason in one.reasons])
    return (one.version, state, when(one.time), one.parent, f"{one.observations:,}", number(one.kl, 2), reasons)


VIEW = View("versions", "Versions", render)
