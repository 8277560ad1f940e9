"""What several views show in the same way: findings, ranges of time and comparisons."""

from __future__ import annotations

from collections.abc import Sequence

from potstill.service.dashboard.html import Child, Html, join, tag
from potstill.service.dashboard.parts import interval, link, notice, url, value
from potstill.summaries import Estimate, Finding, Overview

#: Ranges of time, in hours; 0 is everything.
RANGES = ((6.0, "6 hours"), (24.0, "day"), (168.0, "week"), (720.0, "month"), (0.0, "everything"))
#: Labels of versions that an axis has room for.
MARKS = 12
#: Points that a line needs.
FEWEST_POINTS = 2


def findings(found: Sequence[Finding]) -> Html:
    """What is well and what is not, the worst first."""
    return tag("div", [_finding(one) for one in found], class_="findings", role="list")


def _finding(one: Finding) -> Html:
    then: Child = join(" ", tag("span", one.then, class_="soft")) if one.then else None
    return tag("div", notice(join(value(one.what, 1000), then), one.tone), role="listitem")


def marks(found: Overview, last: float) -> list[tuple[float, str]]:
    """Places of version marks in seconds; versions that are too close for a label of their own share one.

    Args:
        found: The overview.
        last: The last place of the chart's axis.
    """
    least = (found.end - found.start) / 1e6 / MARKS
    placed: list[tuple[float, int, int]] = []
    for mark in found.marks:
        at = min(mark.time / 1e6, last)
        if placed and at - placed[-1][0] < least:
            placed[-1] = (placed[-1][0], placed[-1][1], mark.version)
        else:
            placed.append((at, mark.version, mark.version))
    return [(at, f"v{first}" if first == to else f"v{first}–{to}") for at, first, to in placed]


def ranges(problem: str, view: str, hours: float) -> Html:
    """Links to other ranges of time."""
    items: list[Child] = [
        tag("li", link(name, url(problem, view, hours=f"{one:g}"), current=one == hours)) for one, name in RANGES
    ]
    return tag("nav", tag("ul", items, class_="ranges"), aria_label="Range of time")


def part_start(part: str) -> float:
    """Where a part of a number's scale begins, such as ``1 – 1.9``."""
    return float(part.split(" – ")[0])


def estimate(found: Estimate | None) -> str:
    """An estimate with its interval; a dash for none."""
    return "–" if found is None else interval(found.value, found.low, found.high)
