"""How close a version is to its teacher, by feature: a part of the view of versions."""

from __future__ import annotations

from potstill.service.dashboard.html import Html, tag
from potstill.service.dashboard.parts import bar, notice, percent, table, value
from potstill.service.dashboard.view import Call
from potstill.service.http import Refusal
from potstill.service.reads import fidelity as data

#: Features that are shown.
SHOWN = 6


async def render(call: Call, version: int) -> Html:
    """Fidelity by segment, or why it is not known."""
    title = tag("h3", "Fidelity by segment")
    try:
        found = await data.read_fidelity(call.service, data.FidelityQuery(version=version))
    except Refusal as refusal:
        return tag("div", title, notice(f"{refusal.message[:1].upper()}{refusal.message[1:]}."))
    rows = [
        (value(feature.feature), value(one.group), f"{one.contexts:,}", bar(one.tv), percent(one.tv), f"{one.kl:.3f}")
        for feature in found.features[:SHOWN]
        for one in feature.groups
    ]
    note = (
        f"Measured on the latest {found.contexts:,} logged contexts, which it may have learnt from: over all of them, "
        f"{percent(found.tv)} of decisions differ from the teacher's."
    )
    header = ("feature", "value", "contexts", "decisions that differ", "", "mean KL")
    return tag("div", title, tag("p", note, class_="note"), table(header, rows, caption="Fidelity by segment",
                                                                  numeric=(2, 4, 5)))  # fmt: skip
