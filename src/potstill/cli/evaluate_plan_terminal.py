"""A plan of `potstill evaluate plan` in a terminal: what can be evaluated now and with a floor, and a sentence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from potstill.evaluate.planning import Floored, Foresight, Plan


class Shown(NamedTuple):
    """How figures are shown.

    Attributes:
        rows: how many decisions will be logged.
        range: of rewards, if it is known: a wider interval says nothing.
    """

    rows: int
    range: float | None

    def worth(self, one: Foresight) -> str:
        """How many decisions of a target's own the log will be worth."""
        effective = one.effective_share * self.rows
        return "less than 1" if 0 < effective < 0.5 else f"{effective:,.0f}"

    def width(self, one: Foresight) -> str:
        """The interval to each side; in a cell of a table."""
        if not one.effective_share:
            return "any width"
        return "> range" if self._exceeds(one) else f"± {_two_digits(one.half_width_at(self.rows))}"

    def interval(self, one: Foresight) -> str:
        """The same in a sentence."""
        if one.effective_share and self._exceeds(one):
            return f"an interval wider than the range of rewards, {self.range:.3g}"
        return f"an interval of {self.width(one)}"

    def _exceeds(self, one: Foresight) -> bool:
        return self.range is not None and 2 * one.half_width_at(self.rows) > self.range


def show_plan(found: Plan, floor: float, shown: Shown, console: Console) -> None:
    """What can be evaluated now and with a floor, what floors cost, and a sentence."""
    worst = ", the most that their bounds allow" if found.sd_is_worst else ""
    console.print(
        f"{shown.rows:,} decisions by {escape(found.logging)}, foreseen from {found.contexts:,} contexts; rewards with "
        f"a standard deviation of {found.sd:.3g}{worst}; {100 * found.level:.4g} % intervals",
        highlight=False,
        soft_wrap=True,
    )
    console.print(_targets(found.current, _with_floor(found, floor), shown), "")
    console.print(_floors(found, shown), "")
    console.print(escape(sentence(found, floor, shown)), highlight=False, soft_wrap=True, style="bold")


def sentence(found: Plan, floor: float, shown: Shown) -> str:
    """How well the hardest policy can be evaluated, and what a floor would change."""
    now, then = _hardest(found.current), _with_floor(found, floor)
    said = (
        f"Hardest to evaluate is {_name(now)}: {shown.rows:,} decisions will say as much about it as "
        f"{shown.worth(now)} of its own, {shown.interval(now)}."
    )
    if floor <= found.current.floor:
        return f"{said} The policy has a floor of {found.current.floor:g} already."
    same = next(one for one in then.targets if one.target == now.target)
    if same.effective_share <= 1.01 * now.effective_share:
        return f"{said} A floor of {floor:g} would not change that."
    cost = "" if then.cost is None else f", and cost {'up to ' * found.cost_is_worst}{_cost(then)} per decision"
    return f"{said} A floor of {floor:g} would make that {shown.worth(same)} and {shown.interval(same)}{cost}."


def _with_floor(found: Plan, floor: float) -> Floored:
    return next(one for one in found.floors if one.floor == floor)


def _hardest(floored: Floored) -> Foresight:
    return max(floored.targets, key=lambda one: (one.unsupported, one.half_width))


def _name(one: Foresight) -> str:
    return one.target if one.target == "uniform" else f"always {one.target}"


def _cost(one: Floored) -> str:
    if one.cost is None:
        return "–"
    rounded = round(one.cost, 6) + 0.0  # adding 0 makes a plain zero of a negative one
    return f"{'−' * (rounded < 0)}{abs(rounded):.2g}"


def _two_digits(number: float) -> str:
    """Without an exponent where the number is large."""
    decimals = max(1 - math.floor(math.log10(number)), 0) if number else 0
    return f"{number:.2g}" if decimals else f"{number:,.0f}"


def _targets(now: Floored, then: Floored, shown: Shown) -> Table:
    titles = ("as good as", "interval", f"with floor {then.floor:g}", "interval")
    table = _table("to evaluate", *titles)
    for one, other in zip(now.targets, then.targets, strict=True):
        cells = [cell for each in (one, other) for cell in (shown.worth(each), shown.width(each))]
        table.add_row(escape(_name(one)), *cells)
    return table


def _floors(found: Plan, shown: Shown) -> Table:
    cost = "costs at most" if found.cost_is_worst else "costs"
    table = _table("floor", "least probability", cost, "uniform", "the hardest", "")
    for one in found.floors:
        own = "as it is" if one.floor == found.current.floor else ""
        widths = shown.width(one.targets[0]), shown.width(_hardest(one))
        table.add_row(f"{one.floor:g}", f"{one.smallest:.2g}", _cost(one), *widths, own)
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(first, no_wrap=True)
    for title in others:
        table.add_column(title, justify="right")
    return table
