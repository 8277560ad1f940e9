"""The list of problems that a caller may see."""

from __future__ import annotations

from collections.abc import Sequence

from potstill.service.dashboard.html import Html, join, tag
from potstill.service.dashboard.page import locked
from potstill.service.dashboard.parts import badge, empty, notice, pairs, url, when
from potstill.service.problem_service import ProblemService
from potstill.service.reads import insights
from potstill.service.status import in_thread
from potstill.workspace import in_words


async def index(problems: Sequence[ProblemService], *, hidden: int) -> Html:
    """A card for each problem, and a form for a token if there are others."""
    if not problems and hidden:
        return locked("")
    title = tag("h1", "Problems")
    if not problems:
        return join(title, empty("This service has no problem.", "Start it with potstill serve DIR."))
    listed = tag("ul", [_card(service, await _worst(service)) for service in problems], class_="problems")
    return join(title, listed, _hidden(hidden))


async def _worst(service: ProblemService) -> Html | None:
    """The first finding of the overview; None if the workspace cannot be read now."""
    try:
        found = await in_thread(insights.overview_of, service, insights.RangeQuery())
    except OSError:
        return None
    return notice(found.findings[0].what, found.findings[0].tone)


def _card(service: ProblemService, verdict: Html | None) -> Html:
    snapshot = service.snapshots.current
    policy = snapshot.policy
    serving = "no usable policy" if policy is None else f"version {policy.version}, {in_words(policy)}"
    state = badge("not serving", "bad") if policy is None else badge(snapshot.mode, "good")
    held = [badge(word, "warn") for word, hold in (("pinned", snapshot.pinned), ("paused", snapshot.paused)) if hold]
    name = tag("a", tag("bdi", service.name), href=url(service.name, "")[:-1])
    about = pairs([("serving", serving), ("since", when(round(snapshot.since.timestamp() * 1e6)))])
    return tag("li", tag("h2", name), tag("p", state, held), verdict, about, data_problem=service.name)


def _hidden(hidden: int) -> Html | None:
    if not hidden:
        return None
    what = "Another problem is" if hidden == 1 else f"{hidden} other problems are"
    text = f"{what} not shown. A token with the scope read shows more."
    return tag("details", tag("summary", text), locked(""), class_="more")
