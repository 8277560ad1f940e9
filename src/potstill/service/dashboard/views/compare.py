"""Two versions against each other, a part of the view of versions: where do their actions differ?"""

from __future__ import annotations

from collections.abc import Sequence

from potstill.service.dashboard.html import Child, Html, tag
from potstill.service.dashboard.parts import bar, notice, options, percent, search, section, table, url, value, waiting
from potstill.service.dashboard.view import Call
from potstill.service.http import Refusal
from potstill.service.reads import compare as data

#: Features that are shown in full.
SHOWN = 6


def form(call: Call, versions: Sequence[int], first: int | None, second: int | None) -> Html | None:
    """Two versions to choose, and their comparison when they are chosen."""
    if len(versions) < 2:
        return None
    choices = [(str(number), f"version {number}") for number in versions]
    before, after = (versions[1] if first is None else first), (versions[0] if second is None else second)
    fields = ("from", options("first", choices, str(before))), ("to", options("second", choices, str(after)))
    chosen = None
    if first is not None and second is not None:
        address = url(call.service.name, "versions", part="compare", first=first, second=second)
        chosen = waiting(address, whole=False)
    note = "How often and where two versions take different actions, in the latest logged contexts."
    return section("Compare two versions", search(*fields, label="Compare"), chosen, note=note)


async def render(call: Call, first: int, second: int) -> Html:
    """The comparison."""
    try:
        found = await data.read_comparison(call.service, data.CompareQuery(first=first, second=second))
    except Refusal as refusal:
        return notice(refusal.message, "warn")
    return tag("div", notice(_sentence(found)), _actions(found), [_feature(one) for one in found.features[:SHOWN]])


def _sentence(found: data.CompareReply) -> str:
    said = (
        f"From version {found.first} to {found.second}, {percent(found.differ)} of decisions change, in "
        f"{found.contexts:,} logged contexts; in 5 % of them more than {percent(found.differ_p95)}."
    )
    if not found.features or found.differ < 0.001:
        return said
    return f"{said} Which actions gain depends most on {found.features[0].feature}."


def _actions(found: data.CompareReply) -> Html:
    rows: list[tuple[Child, ...]] = [
        (value(label), bar(before), percent(before), bar(after), percent(after), _signed(after - before))
        for label, before, after in zip(found.labels, found.before, found.after, strict=True)
    ]
    header = ("action", f"version {found.first}", "", f"version {found.second}", "", "change")
    return table(header, rows, caption="Shares of actions", numeric=(2, 4, 5))


def _feature(one: data.FeatureDifference) -> Html:
    rows = [
        (value(each.group), f"{each.contexts:,}", bar(each.differ), percent(each.differ),
         *_moved(each.more, each.more_by), *_moved(each.less, -each.less_by))
        for each in one.groups
    ]  # fmt: skip
    header = ("value", "contexts", "decisions that differ", "", "gains most", "", "loses most", "")
    shown = table(header, rows, caption=f"Differences by {one.feature}", numeric=(1, 3, 5, 7))
    return tag("div", tag("h3", "By ", value(one.feature)), shown)


def _moved(action: str, by: float) -> tuple[Child, Child]:
    return (value(action), _signed(by)) if abs(by) >= 0.0005 else ("–", "")


def _signed(share: float) -> str:
    return f"{100 * share:+.1f} %".replace("-", "−")
