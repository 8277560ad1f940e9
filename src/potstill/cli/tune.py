"""The tune command: compare teachers and students off-policy, on the log."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import TextColumn
from rich.table import Table

from potstill.cli.common import USER_ERRORS, AsJson, Place, exit_on, print_json
from potstill.cli.extras import requires
from potstill.cli.lab import cores
from potstill.cli.root import app

if TYPE_CHECKING:
    from potstill.pipeline import IntervalEstimate, TuningResult
    from potstill.workspace import Workspace

#: Teachers that are compared by default.
TEACHERS = ("auto-ts", "empirical-linear-ts", "neural-linear-ts")
#: Differences below this are rounding.
_ROUNDING = 1e-12


@app.command()
@requires("lake", "learn")
def tune(
    place: Place,
    teacher: Annotated[
        list[str] | None, typer.Option(help="Type of teacher to try; repeat, or separate by commas.")
    ] = None,
    alternatives: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="OPTION=[…]", help="Values of an option, as a TOML array; repeat for more."),
    ] = None,
    parts: Annotated[int, typer.Option(min=3, help="Number of parts into which the log is split by time.")] = 4,
    estimator: Annotated[str, typer.Option(help="Estimator of potstill evaluate, such as dr or snips.")] = "dr",
    level: Annotated[float, typer.Option(help="Confidence level of intervals.")] = 0.95,
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of processes. Default: one per core.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare teachers and students on the log, before changing potstill.toml.

    Each candidate learns from the log part by part, as in updates, and its policies are evaluated on the next part. The
    winner is selected on all parts but the last; its reported value comes from the last. Every combination of the
    stated values is tried. Nothing in the workspace changes.

    Examples: potstill tune video

    potstill tune video --teacher linear-ts,neural-linear-ts --set 'student.hidden=[[20], [100, 100]]'

    potstill tune video --set 'teacher.window=[5000, 50000]'
    """
    from potstill.pipeline import make_candidates
    from potstill.pipeline import run_tuning as tuned
    from potstill.progress import bars
    from potstill.workspace import Workspace

    console = Console(stderr=as_json)
    with exit_on(*USER_ERRORS):
        workspace = Workspace(place)
        names = [name for text in teacher or () for name in text.split(",") if name]
        tried = make_candidates(workspace, names or ([] if alternatives else _usual(workspace)), alternatives or [])
        with bars(console, TextColumn("{task.completed:,.0f} of {task.total:,.0f} updates")) as progress:
            bar = progress.add_task("", total=len(tried) * (parts - 1))
            found = tuned(
                workspace,
                tried,
                parts=parts,
                estimator=estimator,
                level=level,
                jobs=jobs or cores(),
                on_progress=lambda done: progress.update(bar, completed=done),
            )
    if as_json:
        print_json(found)
    else:
        _show(found, console)


def _usual(workspace: Workspace) -> list[str]:
    """The default teachers, or all that learn a number if the actions are no list."""
    from potstill.teachers import available, from_config

    counting = workspace.problem.actions.measure == "counting"
    names = TEACHERS if counting else [name for name in available() if name != "uniform"]
    return [name for name in names if from_config({"type": name}).supports(workspace.problem.actions) is None]


def _show(found: TuningResult, console: Console) -> None:
    title = f"Estimated reward per decision, {100 * found.level:.4g} % intervals"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("settings", no_wrap=True)
    for column in ("reward", "difference to present", "KL", "seconds"):
        table.add_column(column, justify="right")
    for one in found.tried:
        difference = "–" if one.difference is None else _with_interval(one.difference, "+")
        table.add_row(
            escape(one.candidate.name),
            _with_interval(one.earned),
            difference,
            f"{one.kl:.2g}",
            f"{one.seconds:.1f}",
        )
    console.print(table)
    for line in _verdict(found):
        console.print(escape(line), highlight=False, soft_wrap=True)


def _verdict(found: TuningResult) -> list[str]:
    rows = f"{found.rows:,} logged decisions in {found.parts} parts"
    if found.difference is None:
        return [
            f"The present settings are the best of these, on {rows}: {_with_interval(found.earned)} in the last part."
        ]
    difference = found.difference
    sure = "better" if difference.low > 0 else "worse" if difference.high < 0 else "not clearly different"
    if max(map(abs, (difference.low, difference.high))) < _ROUNDING:
        sure = "no different"
    lines = [
        f"The best is {found.winner.name!r}, on {rows}. In the last part, which did not select it, it is {sure}: "
        f"{_with_interval(difference, '+')} against the present settings.",
    ]
    if found.trust.grade != "good":
        lines.append(found.trust.sentence)
    return lines if sure == "worse" else [*lines, "To use it, put this into potstill.toml:", "", *_toml(found)]


def _toml(found: TuningResult) -> list[str]:
    import tomli_w

    winner = found.winner
    return tomli_w.dumps({"teacher": winner.teacher, "student": winner.student}).strip().splitlines()


def _with_interval(judged: IntervalEstimate, sign: str = "") -> str:
    """A value with its interval, with four decimals, or as many as show two digits of half the interval."""
    half = (judged.high - judged.low) / 2
    if half < _ROUNDING and abs(judged.value) < _ROUNDING:
        return "0"
    decimals = 4 if half >= 1e-4 or half < _ROUNDING else 1 - math.floor(math.log10(half))
    value, low, high = (  # adding 0 makes a plain zero of a negative one
        f"{round(number, decimals) + 0.0:{sign}.{decimals}f}" for number in (judged.value, judged.low, judged.high)
    )
    shown = f"{value} ({low} to {high})" if math.isfinite(half) else f"{value} (no interval)"
    return shown.replace("-", "−")
