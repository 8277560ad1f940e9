"""Evaluations in a terminal: a table of estimates, one of each kind of segment, and a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from potstill.evaluate.estimates import Estimate
from potstill.evaluate.evaluation import Evaluation, Segment
from potstill.evaluate.text import Figures, doubt, doubtful, footnotes, percent, spanned, starred, trusted, verdict

_COLOURS = {"good": "green", "caution": "yellow", "no": "red"}


def show_evaluation(
    evaluation: Evaluation, span: tuple[int, int] | None, notes: Sequence[str], console: Console
) -> None:
    """The estimates, segments and stretches of time, and what to think of them."""
    console.print(_title(evaluation, span), highlight=False, soft_wrap=True)
    tables = [_estimates(evaluation)]
    tables += [_segments(evaluation, f"by {feature}", segments) for feature, segments in evaluation.segments.items()]
    tables += [_segments(evaluation, "over time", evaluation.stretches)] if evaluation.stretches else []
    for table in tables:
        console.print(table, "")
    for note in (*footnotes(evaluation), *notes):
        console.print(escape(note), highlight=False, soft_wrap=True, style="dim")
    console.print(escape(verdict(evaluation)), highlight=False, soft_wrap=True, style="bold")
    colour = _COLOURS[doubt(evaluation)[1].grade]
    console.print(escape(trusted(evaluation)), highlight=False, soft_wrap=True, style=colour)


def _title(evaluation: Evaluation, span: tuple[int, int] | None) -> str:
    against = f" against {evaluation.against.name}" if evaluation.against else ""
    rows = f"{evaluation.rows:,} decisions {spanned(span)}".strip()
    return escape(f"{evaluation.target.name}{against}, on {rows}; {percent(evaluation.level)} intervals")


def _table(evaluation: Evaluation, *first: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(escape(first[0]))
    names = [evaluation.target.name, *([evaluation.against.name, "difference"] if evaluation.against else [])]
    for name in (*first[1:], *names):
        table.add_column(escape(name), justify="right", no_wrap=True)
    table.add_column("interval", no_wrap=True)
    return table


def _cells(figures: Figures, target: Estimate, against: Estimate | None, difference: Estimate | None) -> list[str]:
    """What the target would have earned, with an interval; where there are two, that of the difference."""
    if against is None or difference is None:
        return [figures.number(target.value), figures.interval(target)]
    values = [figures.number(target.value), figures.number(against.value), figures.change(difference.value)]
    return [*values, figures.interval(difference, signed=True)]


def _estimates(evaluation: Evaluation) -> Table:
    table, figures = _table(evaluation, "estimator"), Figures(evaluation)
    others = evaluation.against.estimates if evaluation.against else {}
    for name, estimate in evaluation.target.estimates.items():
        cells = _cells(figures, estimate, others.get(name), (evaluation.difference or {}).get(name))
        style = "bold" if name == evaluation.headline else None
        table.add_row(escape(starred(estimate)), *cells, style=style)
    return table


def _segments(evaluation: Evaluation, title: str, segments: Sequence[Segment]) -> Table:
    table, figures = _table(evaluation, title, "rows"), Figures(evaluation)
    table.add_column("", no_wrap=True)
    for one in segments:
        cells = _cells(figures, one.target, one.against, one.difference)
        word = doubtful(one) if one.trust.grade == "no" else ""  # nearly all segments want some caution
        table.add_row(escape(one.name), f"{one.rows:,}", *cells, word, style="dim" if word else None)
    return table
