"""The tune command: which settings would have earned more, by the log."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import TextColumn
from rich.table import Table

from potstill.cli.app import AsJson, app, needs, print_json, refusing
from potstill.cli.common import MENDABLE, Place
from potstill.cli.lab import cores

if TYPE_CHECKING:
    from potstill.pipeline.tune import IntervalEstimate, TuningResult

#: What is compared if nothing else is asked for.
TEACHERS = ("linear-ts", "neural-linear-ts", "adaptive-ts")
#: Differences below this come from rounding.
_ROUNDING = 1e-12


@app.command()
def tune(
    place: Place,
    teacher: Annotated[
        list[str] | None, typer.Option(help="A type of teacher to try; repeat it, or separate by commas.")
    ] = None,
    alternatives: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="OPTION=[…]", help="Values of an option, as a TOML array; repeat for more."),
    ] = None,
    parts: Annotated[int, typer.Option(min=3, help="Into which the log is cut, by time.")] = 4,
    estimator: Annotated[str, typer.Option(help="Of potstill evaluate: dr, snips, replay for uniform logs, …")] = "dr",
    level: Annotated[float, typer.Option(help="The confidence of intervals.")] = 0.95,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; one per core if left out.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare teachers and students on what was logged, before letting another one serve.

    Each candidate learns from the log part by part, as updates would have come, and its policies are judged on the part
    that follows. The winner is chosen by all parts but the last, and what is said of it comes from the last. Every
    combination of the values that you name is tried. Nothing in the workspace changes.

    Examples: potstill tune video

    potstill tune video --teacher linear-ts,neural-linear-ts --set 'student.hidden=[[20], [100, 100]]'

    potstill tune video --set 'teacher.discount=[0.9, 0.99, 1.0]'
    """
    with needs("lake"), needs("learn"):
        from potstill.pipeline.candidates import candidates
        from potstill.pipeline.tune import tune as tuned
        from potstill.progress import bars
        from potstill.workspace import Workspace

    console = Console(stderr=as_json)
    with refusing(*MENDABLE):
        workspace = Workspace(place)
        names = [name for text in teacher or () for name in text.split(",") if name]
        tried = candidates(workspace.config, names or ([] if alternatives else TEACHERS), alternatives or [])
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


def _show(found: TuningResult, console: Console) -> None:
    table = Table(
        title=f"What each would have earned per decision, {100 * found.level:.4g} % intervals", title_justify="left"
    )
    table.add_column("settings")
    for column in ("earned", "more than at present", "KL", "seconds"):
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
            f"The present settings are the best of these, by {rows}: {_with_interval(found.earned)} in the last part."
        ]
    difference = found.difference
    sure = "better" if difference.low > 0 else "worse" if difference.high < 0 else "not clearly different"
    if max(map(abs, (difference.low, difference.high))) < _ROUNDING:
        sure = "no different"
    lines = [
        f"The best is {found.winner.name!r}, by {rows}. In the last part, by which it was not chosen, it is {sure}: "
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
    """Normal intervals are symmetric. Four decimals, or as many as show two digits of the interval."""
    half = (judged.high - judged.low) / 2
    if half < _ROUNDING and abs(judged.value) < _ROUNDING:
        return "0"
    decimals = 4 if half >= 1e-4 or half < _ROUNDING else 1 - math.floor(math.log10(half))
    value = round(judged.value, decimals) + 0.0  # adding 0 makes a plain zero of a negative one
    return f"{value:{sign}.{decimals}f} ± {half:.{decimals}f}".replace("-", "−")
