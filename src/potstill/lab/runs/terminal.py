"""A run in a terminal: progress bars with the time left, then a table of results."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table

from potstill.lab.report import estimate
from potstill.lab.runs.algorithms import ALGORITHMS
from potstill.lab.runs.comparison import Comparison
from potstill.lab.runs.runner import Progress as Run
from potstill.lab.runs.summary import Row
from potstill.lab.runs.workers import Task

#: Seconds between two lines of progress without a terminal.
LINE_EVERY = 30.0


class Display:
    """Shows the progress of a run: bars in a terminal, occasional lines elsewhere.

    Args:
        bars: Progress bars to draw on.
    """

    def __init__(self, bars: Progress) -> None:
        self._bars, self._console = bars, bars.console
        self._overall = bars.add_task("trials", total=None, note="")
        self._running: dict[Task, TaskID] = {}
        self._told, self._failures = time.monotonic(), 0

    def __call__(self, run: Run) -> None:
        """Show the current progress."""
        done = run.kept + run.finished + len(run.failures)
        left = f"about {duration(run.seconds_left)} left"
        note = f"{done:,} of {run.total:,}, {left}"
        self._bars.update(self._overall, total=run.total, completed=done + sum(run.running.values()), note=note)
        self._draw_running(run.running)
        for failure in run.failures[self._failures :]:
            self._console.print(f"[red]failed:[/] {escape(str(failure.task))}: {escape(failure.error)}", soft_wrap=True)
        self._failures = len(run.failures)
        if not self._console.is_terminal and time.monotonic() - self._told > LINE_EVERY:
            self._console.print(f"{done:,} of {run.total:,} trials, {left}", highlight=False)
            self._told = time.monotonic()

    def _draw_running(self, running: dict[Task, float]) -> None:
        for task in self._running.keys() - running.keys():
            self._bars.remove_task(self._running.pop(task))
        for task, share in running.items():
            if task not in self._running:
                self._running[task] = self._bars.add_task(str(task), total=1.0, note="")
            self._bars.update(self._running[task], completed=share)


@contextmanager
def display(console: Console) -> Iterator[Display]:
    """Progress bars while a run is active."""
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    with bars:
        yield Display(bars)


def duration(seconds: float) -> str:
    """A duration as text."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def print_rows(rows: Sequence[Row], skipped: dict[str, str], console: Console) -> None:
    """Print the results, one table for each problem, and the reasons for what was left out."""
    for problem in dict.fromkeys(row.problem for row in rows):
        console.print(_table(problem, [row for row in rows if row.problem == problem]))
    for name, reason in skipped.items():
        console.print(f"[yellow]left out:[/] {escape(name)}: {escape(reason)}", soft_wrap=True, highlight=False)


def _table(problem: str, rows: list[Row]) -> Table:
    measured = "final regret" if rows[0].measure == "regret" else "mean reward"
    table = Table(
        title=f"\n{problem}: {measured}, mean ± two standard errors over n trials",
        title_justify="left",
        box=None,
        padding=(0, 1),
    )
    for heading in ("algorithm", "preset"):
        table.add_column(heading, no_wrap=True)
    for heading in ("n", measured, "IL / TS (95 %)", "s / trial"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(escape(ALGORITHMS[row.algorithm].title), row.preset, *_cells(row))
    return table


def _cells(row: Row) -> list[str]:
    seconds = "" if row.seconds is None else f"{row.seconds:.1f}"
    return [f"{row.final.trials}", estimate(row.final), _ratio(row.against_ts), seconds]


def _ratio(pair: Comparison | None) -> str:
    if pair is None or pair.ratio is None:
        return ""
    interval = "" if pair.low is None or pair.high is None else f" ({pair.low:.2f}–{pair.high:.2f})"
    return f"{pair.ratio:.3f}{interval}"
