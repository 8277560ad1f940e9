"""The lab's commands: the paper's evaluation, rerun."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from potstill.cli.app import AsJson, app, fail, make_directory, needs, print_json, refusing

if TYPE_CHECKING:
    from potstill.lab.runs import RunSpec

lab = typer.Typer(
    name="lab",
    help="The paper's evaluation: run it, report it, and try it on data of your own.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(lab)

Names = list[str]
Label = Annotated[str | None, typer.Option(help="For a CSV or Parquet file: the column of the class to name.")]
Target = Annotated[str | None, typer.Option(help="For a CSV or Parquet file: the column of the amount to hit.")]
Levels = Annotated[int, typer.Option(min=2, help="For --target: how many amounts to choose from.")]
Without = Annotated[Names | None, typer.Option(help="For a file: a column to leave out, such as an id; repeat it.")]


@lab.command()
def run(
    problem: Annotated[
        Names | None,
        typer.Option(help="A problem of --list, `all`, or a table of your own; repeat it, or separate by commas."),
    ] = None,
    algorithms: Annotated[
        Names | None,
        typer.Option(help="Names of --list, `all` or `peers`; repeat it, or separate by commas or spaces."),
    ] = None,
    more: Annotated[Names | None, typer.Argument(metavar="ALGORITHMS", help="What follows --algorithms.")] = None,
    preset: Annotated[str, typer.Option(help="Hyperparameters: `paper`, `potstill` or `both`.")] = "both",
    trials: Annotated[int | None, typer.Option(min=1, help="Of each algorithm; 10 if left out.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes; one per core if left out.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds give equal results, whatever the jobs.")] = 0,
    decisions: Annotated[int | None, typer.Option(min=1, help="In a trial, instead of the problem's own.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for results; finished trials in it are kept.")] = Path("results"),
    quick: Annotated[bool, typer.Option("--quick", help="All of it on a small scale, in a few minutes.")] = False,
    label: Label = None,
    target: Target = None,
    levels: Levels = 20,
    without: Without = None,
    listing: Annotated[bool, typer.Option("--list", help="Show the problems and algorithms, and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON; progress to stderr.")] = False,
) -> None:
    """Run trials of algorithms on problems, and keep each as it ends.

    Every algorithm meets the same requests with the same luck in trials of the same number. A run that was stopped goes
    on where it was when the same command is given again.

    Examples:
    potstill lab run --problem wheel --algorithms all --trials 50 --jobs 2 --out results/

    potstill lab run --problem mushroom,warfarin-20 --algorithms linear-ts,linear-ts-il,peers

    potstill lab run --problem flowers.csv --label species --algorithms linear-ts-il
    """
    with needs("lab"):
        from potstill.lab.problems import OwnTable
        from potstill.lab.runs import RunSpec
    if listing:
        _print_list(as_json)
        return
    with refusing(ValueError, OSError):
        asked = _split([*(algorithms or []), *(more or [])])
        if algorithms is not None and not asked:
            fail("--algorithms names none; say `all`, `peers`, or names of --list")
        experiment = RunSpec.of(
            problems=_split(problem),
            algorithms=asked,
            preset=preset,
            trials=trials,
            decisions=decisions,
            seed=seed,
            own=OwnTable(label=label, target=target, levels=levels, without=tuple(without or ())),
            quick=quick,
        )
        _run(experiment, jobs or cores(), out, as_json=as_json)


def _run(experiment: RunSpec, jobs: int, out: Path, *, as_json: bool) -> None:
    from potstill.lab.runs import display, print_rows

    make_directory(out)
    console = Console(stderr=as_json)
    with console.status("reading the data"):
        experiment.prepare()
    try:
        with display(console) as show:
            ended = experiment.run(jobs, out, on_progress=show)
    except KeyboardInterrupt:
        typer.secho(f"stopped; finished trials are kept in {out}: give the same command again to go on", err=True)
        raise typer.Exit(130) from None
    rows = experiment.summary(out)
    if as_json:
        failures = [{"task": str(failure.task), "error": failure.error} for failure in ended.failures]
        print_json({"out": str(out), "rows": rows, "skipped": experiment.skipped, "failures": failures})
    else:
        print_rows(rows, experiment.skipped, console)
        console.print(f"kept in {out}; see it all with: potstill lab report {out}", highlight=False, soft_wrap=True)
    if ended.failures:
        fail(f"{len(ended.failures)} of {ended.total} trials failed; the others are kept")


def cores() -> int:
    """How many this process may use; not every system can tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _split(names: Names | None) -> Names:
    """Names that are separated by commas, unless such a name is a file's."""
    parts = ([name] if Path(name).is_file() else name.split(",") for name in names or [])
    return [part for some in parts for part in some if part]


def _print_list(as_json: bool) -> None:
    from potstill.lab.problems import SCENARIOS
    from potstill.lab.runs import ALGORITHMS

    if as_json:
        problems = [
            {"name": s.name, "title": s.title, "decisions": s.decisions, "batch": s.batch} for s in SCENARIOS.values()
        ]
        algorithms = [{"name": a.name, "about": a.about, "presets": a.presets} for a in ALGORITHMS.values()]
        print_json({"problems": problems, "algorithms": algorithms})
        return
    console = Console()
    table = Table("problem", "what", "decisions", "update every", title="Problems", title_justify="left")
    for one in SCENARIOS.values():
        table.add_row(one.name, one.title, f"{one.decisions:,}", f"{one.batch:,}")
    console.print(table)
    console.print(
        "and wheel-DELTA, such as wheel-0.5, video-8m for a longer log, or a table with --label or --target\n",
        highlight=False,
    )
    table = Table("algorithm", "what", "presets", title="Algorithms", title_justify="left")
    for algorithm in ALGORITHMS.values():
        table.add_row(algorithm.name, algorithm.about, ", ".join(algorithm.presets))
    console.print(table)


@lab.command()
def data(
    out: Annotated[Path | None, typer.Option(help="Folder to fetch to; a cache of its own if left out.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Only say where the files are.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch the real data files that are not there yet, and say where each is.

    They are looked for in the folder that POTSTILL_DATA names, then beside the checkout, then in the cache.
    """
    with needs("lab"):
        from potstill.lab.problems import download, located
    # What is there already is fetched again only for a folder that somebody names.
    with refusing(OSError):
        wanted = [] if show else [file.source for file in located() if out or not file.path]
        for path in download(out, wanted):
            typer.echo(f"fetched {path}", err=True)
        files = located()
    if as_json:
        print_json(
            [{"name": file.source.name, "place": file.place, "path": file.path and str(file.path)} for file in files]
        )
        return
    for file in files:
        found = f"{file.path} ({file.place})" if file.path else "not there"
        typer.echo(f"{file.source.name}: {found}; {file.source.about}")
    if out and wanted:
        typer.echo(f"to use what was fetched: export POTSTILL_DATA={out}")


@lab.command()
def report(
    results: Annotated[Path, typer.Argument(help="The folder that `potstill lab run` has written to.")] = Path(
        "results"
    ),
    out: Annotated[Path | None, typer.Option(help="Folder for the report; RESULTS/report if left out.")] = None,
    calls: Annotated[
        int, typer.Option(min=0, help="Of one decision, for each latency; 0 leaves out what is measured here.")
    ] = 100_000,
    again: Annotated[bool, typer.Option("--again", help="Measure anew what an earlier report has measured.")] = False,
    markdown: Annotated[
        Path | None, typer.Option(help="Write the Markdown page here, with a folder of figures and trials beside it.")
    ] = None,
    notes: Annotated[Path | None, typer.Option(help="A text file with remarks to print in the report.")] = None,
    as_json: AsJson = False,
    open_report: Annotated[bool, typer.Option("--open/--no-open", help="Open the report in a browser.")] = False,
) -> None:
    """Show finished trials: figures, tables, and how fast decisions are on this machine.

    Writes report.html, figures as PNG, summary.json and results.md. Trials of any problems, presets and algorithms may
    be there; what is missing is left out.
    """
    with needs("lab"):
        from potstill.lab.report import write_report as written
    if not results.is_dir():
        fail(f"there is no folder {results}: run trials first, with potstill lab run --out {results}")
    folder = out or results / "report"
    with refusing(ValueError, OSError):
        remarks = notes.read_text(encoding="utf-8") if notes else ""
    make_directory(folder)
    console = Console(stderr=True)
    with refusing(ValueError, OSError), console.status("reading") as status:
        made = written(
            results,
            folder,
            calls=calls,
            again=again,
            markdown=markdown,
            notes=remarks,
            command=f"potstill {shlex.join(sys.argv[1:])}",
            say=status.update,
        )
    if as_json:
        print_json(made.summary)
    else:
        typer.echo(str(made.page))
    if open_report:
        typer.launch(str(made.page))


@app.command()
def demo(
    decisions: Annotated[int, typer.Option(min=1, help="Uploads to decide on, in all.")] = 20_000,
    batch: Annotated[int, typer.Option(min=1, help="Decisions between two updates of the policy.")] = 1_000,
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds give equal results, apart from timings.")] = 0,
    out: Annotated[Path, typer.Option(help="Directory for the policy and the report.")] = Path("potstill-demo"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results as JSON; progress goes to stderr.")
    ] = False,
    open_report: Annotated[bool, typer.Option("--open/--no-open", help="Open the report in a browser.")] = False,
) -> None:
    """Run the whole circle on a simulated upload service.

    A policy starts out uniform, decides batch after batch of uploads, and is distilled anew after each one. It is shown
    beside undistilled Thompson sampling, uniform choice and the best possible. Ends with a policy file, a report page
    to open in a browser, and three lines of Python to use the policy.
    """
    with needs("lab"):
        from potstill.lab.demo import Demo, run
    make_directory(out)
    report = run(Demo(decisions=decisions, batch=batch, seed=seed), out, as_json=as_json)
    if open_report:
        typer.launch(str(report))
