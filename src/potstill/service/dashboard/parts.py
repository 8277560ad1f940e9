"""What views are built from: sections, tables, bars, charts, notices, and buttons that change something."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, urlencode

import msgspec

from potstill.service.dashboard.html import Child, Html, join, tag

#: Characters of a value that are shown at once; the rest unfolds.
SHOWN = 160
Tone = Literal["good", "warn", "bad", "plain"]


class Series(NamedTuple):
    """A line of a chart.

    Attributes:
        label: Its name.
        values: One for each x; None for none.
        low: Lower ends of intervals, drawn as a band together with `high`.
        high: Upper ends.
    """

    label: str
    values: Sequence[float | None]
    low: Sequence[float | None] | None = None
    high: Sequence[float | None] | None = None


def section(title: str, *children: Child | Iterable[Child], note: Child = None) -> Html:
    """A section with a heading and, below it, one sentence about what it shows."""
    return tag("section", tag("h2", title), None if note is None else tag("p", note, class_="note"), *children)


def cards(*children: Child) -> Html:
    """Key figures beside each other; see `card`."""
    return tag("div", *children, class_="cards")


def card(label: str, figure: Child, text: Child = None) -> Html:
    """A key figure."""
    about = None if text is None else tag("span", text, class_="about")
    return tag("div", tag("span", label, class_="label"), tag("strong", figure), about, class_="card")


def notice(text: Child, tone: Tone = "plain") -> Html:
    """A sentence that stands out, such as the verdict of a view."""
    return tag("p", text, class_=f"notice {tone}")


def badge(text: str, tone: Tone = "plain") -> Html:
    """A word about a row, such as ``serving``."""
    return tag("span", text, class_=f"badge {tone}")


def empty(what: str, then: Child) -> Html:
    """An empty state: what is not there yet, and what to do next."""
    return tag("div", tag("p", tag("strong", what)), tag("p", then), class_="empty")


def waiting(address: str, *, whole: bool = True) -> Html:
    """In place of what takes longer: it is asked for at once, and takes this place; of the whole view, or of itself."""
    target, swap = ("#view", "innerHTML") if whole else ("this", "outerHTML")
    return tag(
        "p", "Reading the workspace…", class_="waiting soft", role="status",
        hx_get=address, hx_trigger="load", hx_target=target, hx_swap=swap,
    )  # fmt: skip


def options(name: str, choices: Iterable[tuple[str, str]], chosen: str) -> Html:
    """A list to choose from, of values and their texts."""
    listed = [tag("option", text, value=value, selected=value == chosen) for value, text in choices]
    return tag("select", listed, name=name)


def search(*fields: tuple[str, Html], label: str, hidden: Mapping[str, str] | None = None) -> Html:
    """A form whose fields go into the address of the view."""
    kept = [tag("input", type="hidden", name=name, value=value) for name, value in (hidden or {}).items()]
    shown = [tag("label", title, field) for title, field in fields]
    return tag("form", kept, shown, tag("button", label, class_="primary"), method="get", class_="search")


def code(text: str) -> Html:
    """A command or a name of a field."""
    return tag("code", text)


def value(text: object, shown: int = SHOWN) -> Html:
    """A value from outside: isolated, so that right-to-left text does not reorder what is around it, and folded."""
    whole = text if isinstance(text, str) else msgspec.json.encode(text, enc_hook=str).decode()
    if len(whole) <= shown:
        return tag("bdi", whole, class_="value")
    head = tag("summary", tag("bdi", whole[:shown] + "…"), tag("span", f" {len(whole):,} characters", class_="soft"))
    return tag("details", head, tag("bdi", whole, class_="value long"), class_="fold")


def table(
    header: Sequence[Child],
    rows: Iterable[Sequence[Child]],
    *,
    caption: str,
    numeric: Sequence[int] = (),
) -> Html:
    """A table that scrolls within itself where the page is narrow.

    Args:
        header: Titles of the columns.
        rows: Cells.
        caption: What it shows, for screen readers.
        numeric: Positions of the columns that are aligned to the right.
    """

    def cells(name: str, row: Sequence[Child]) -> Html:
        about: dict[str, str | None] = {"scope": "col"} if name == "th" else {}
        return tag(
            "tr", [tag(name, cell, class_="number" if n in numeric else None, **about) for n, cell in enumerate(row)]
        )

    body = [cells("td", row) for row in rows]
    inside = (tag("caption", caption, class_="hidden"), tag("thead", cells("th", header)), tag("tbody", body))
    # Focusable, so that it can be scrolled without a pointer.
    return tag("div", tag("table", *inside), class_="table", tabindex="0", role="region", aria_label=caption)


def held(by: str, reason: str, since: datetime) -> Html:
    """Who holds something, since when and why."""
    return join(" by ", value(by or "unknown"), " since ", when(since), *((": ", value(reason)) if reason else ()))


def pairs(rows: Iterable[tuple[Child, Child]]) -> Html:
    """Names and values below each other."""
    return tag("dl", [join(tag("dt", name), tag("dd", value)) for name, value in rows])


def bar(
    share: float, label: str = "", low: float | None = None, high: float | None = None, *, point: bool = False
) -> Html:
    """A horizontal bar of a share from 0 to 1, with an interval if there is one.

    Args:
        share: From 0 to 1.
        label: What it says, for screen readers; the share in percent if left out.
        low: Lower end of an interval.
        high: Upper end.
        point: Whether it is a point on a scale that does not begin at nothing, and not a length.
    """

    def x(number: float) -> str:
        return f"{100 * min(max(number, 0.0), 1.0) if math.isfinite(number) else 0.0:.3g}"

    whisker = None
    if low is not None and high is not None:
        whisker = tag("line", x1=x(low), x2=x(high), y1="5", y2="5", class_="whisker")
    rect = tag("rect", x="0", y="1", width=x(share), height="8", class_="fill")
    if point:
        at = min(max(share, 0.0), 1.0) * 0.98
        rect = tag("rect", x=x(at), y="1", width="2", height="8", class_="point")
    track = tag("rect", x="0", y="1", width="100", height="8", class_="track")
    over = (whisker, rect) if point else (rect, whisker)
    return tag(
        "svg", track, *over, class_="bar", viewBox="0 0 100 10", preserveAspectRatio="none",
        role="img", aria_label=label or f"{share:.1%}",
    )  # fmt: skip


def chart(
    title: str,
    x: Sequence[float],
    series: Sequence[Series],
    *,
    unit: str = "",
    marks: Sequence[tuple[float, str]] = (),
    times: bool = True,
    stacked: bool = False,
    ordered: bool = False,
) -> Html:
    """A line chart, drawn by uPlot, with its numbers as a table for those who cannot see it.

    Args:
        title: What it shows.
        x: Seconds since 1970, increasing; or numbers, if `times` is false.
        series: Lines over `x`.
        unit: What the values are, the title of their axis.
        marks: Places on the x axis with a label, such as a version that began to serve.
        times: Whether `x` is time.
        stacked: Whether values are shares that add up, drawn as areas on each other.
        ordered: Whether the lines are in an order, such as parts of a range, which their colours then show.
    """
    spec = {
        "x": list(x),
        "series": [line._asdict() for line in series],
        "unit": unit,
        "marks": [list(mark) for mark in marks],
        "times": times,
        "stacked": stacked,
        "ordered": ordered,
    }
    shape = tag("div", class_="chart", data_chart=_json(spec), role="img", aria_label=title)
    numbers = tag("details", tag("summary", "Numbers"), _numbers(title, x, series, times=times))
    return tag("figure", tag("figcaption", title), shape, numbers)


def button(
    label: str,
    action: str,
    body: Mapping[str, Any],
    *,
    ask: str,
    danger: bool = False,
    disabled: bool = False,
) -> Html:
    """A button that asks for a reason and then posts to ``/v1/PROBLEM/ACTION``.

    Args:
        label: Text of the button.
        action: Path of the endpoint below the problem, such as ``admin/pin``.
        body: Its request, without author and reason.
        ask: What is confirmed: the consequence in one sentence.
        danger: Whether it takes something back, or overrides a check.
        disabled: Whether it cannot be pressed now.
    """
    return tag(
        "button", label, type="button", class_="danger" if danger else None, disabled=disabled,
        data_action=action, data_body=_json(body), data_ask=ask,
    )  # fmt: skip


def url(problem: str, view: str, **query: str | int | None) -> str:
    """Address of a view."""
    stated = {key: number for key, number in query.items() if number is not None}
    return f"/p/{quote(problem, safe='')}/{view}{'?' + urlencode(stated) if stated else ''}"


def link(text: Child, to: str, *, current: bool = False) -> Html:
    """A link within the pages."""
    return tag("a", text, href=to, aria_current="page" if current else None)


def when(time: datetime | int | None) -> Html | None:
    """A time, or microseconds since 1970; the reader's browser shows it in its own zone."""
    if time is None:
        return None
    moment = time if isinstance(time, datetime) else datetime.fromtimestamp(time / 1e6, UTC)
    return tag("time", moment.strftime("%Y-%m-%d %H:%M:%S UTC"), datetime=moment.isoformat())


def number(amount: float | None, digits: int = 3) -> str:
    """A number with a few significant digits; a dash for none."""
    if amount is None or not math.isfinite(amount):
        return "–"
    if amount == int(amount) and abs(amount) < 1e15:
        return f"{int(amount):,}"
    return f"{amount:,.0f}" if abs(amount) >= 10**digits else f"{amount:.{digits}g}"


def interval(amount: float | None, low: float | None, high: float | None, *, signed: bool = False) -> str:
    """A number with its interval, all with as many decimals as the interval's width is worth.

    Args:
        amount: The number.
        low: Lower end; None if it is not known.
        high: Upper end.
        signed: Whether it is a difference, which has a sign in any case.
    """
    if amount is None or low is None or high is None:
        return number(amount)
    shape = f"{'+' if signed else ''},.{_decimals(high - low)}f"
    return f"{amount:{shape}} ({low:{shape}} to {high:{shape}})".replace("-", "−")


def between(low: float | None, high: float | None) -> str:
    """The ends of an interval; a dash for none."""
    if low is None or high is None:
        return "–"
    shape = f",.{_decimals(high - low)}f"
    return f"{low:{shape}} to {high:{shape}}".replace("-", "−")


def _decimals(width: float) -> int:
    """Decimals that show two digits of half an interval."""
    return min(max(1 - math.floor(math.log10(width / 2)), 0), 9) if width > 0 and math.isfinite(width) else 3


def reward(amount: float | None) -> str:
    """A reward in a column, with decimals that stay the same from row to row; a dash for none."""
    if amount is None or not math.isfinite(amount):
        return "–"
    small = 0 < abs(amount) < 0.01 or abs(amount) >= 1000
    return number(amount) if small else f"{amount:.3f}".replace("-", "−")


def percent(share: float | None) -> str:
    """A share in percent; a dash for none."""
    return "–" if share is None or not math.isfinite(share) else f"{100 * share:.1f} %"


def _json(spec: object) -> str:
    return msgspec.json.encode(spec).decode()


def _numbers(title: str, x: Sequence[float], series: Sequence[Series], *, times: bool) -> Html:
    def cells(at: int) -> Iterable[Child]:
        yield when(round(x[at] * 1e6)) if times else number(x[at])
        for line in series:
            low, high = (None if ends is None else ends[at] for ends in (line.low, line.high))
            yield interval(line.values[at], low, high)

    header = ("time" if times else "x", *(line.label for line in series))
    known = [at for at in range(len(x)) if any(line.values[at] is not None for line in series)]
    return table(header, [tuple(cells(at)) for at in known], caption=title, numeric=range(1, len(series) + 1))
