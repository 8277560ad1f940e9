"""The lab: the paper's evaluation, and a demo."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from potstill.cli.common import AsJson, exit_on, fail, make_directory, print_json
from potstill.cli.extras import requires
from potstill.cli.root import app

if TYPE_CHECKING:
    from potstill.lab.runs import Progress, RunSpec

lab = typer.Typer(
    name="lab",
    help="Run and report the paper's evaluation, also on your own data.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(lab)

Names = list[str]
Label = Annotated[str | None, typer.Option(help="For a CSV or Parquet file: column of the class label.")]
Target = Annotated[str | None, typer.Option(help="For a CSV or Parquet file: column of the number to predict.")]
Dose = Annotated[str | None, typer.Option(help="The same, to be chosen as a number and not among levels.")]
Levels = Annotated[int, typer.Option(min=2, help="With --target: number of levels to choose from.")]
Rewards = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="With --label: rewards by class and action; first column the class, then one per action."
    ),
]
Without = Annotated[Names | None, typer.Option(help="For a file: column to ignore, such as an id; repeat for more.")]


@lab.command()
@requires("lab")
def run(
    problem: Annotated[
        Names | None,
        typer.Option(
            help="Problem of --list, `all`, `numbers` (those whose action is a number), or your own table; repeat, or "
            "separate by commas."
        ),
    ] = None,
    algorithms: Annotated[
        Names | None,
        typer.Option(help="Names of --list, `all` or `peers`; repeat, or separate by commas or spaces."),
    ] = None,
    more: Annotated[Names | None, typer.Argument(metavar="ALGORITHMS", help="Further names of algorithms.")] = None,
    preset: Annotated[
        str,
        typer.Option(
            help="Hyperparameters: `paper`, `paper-fresh` (students start afresh at each update), `potstill`, or "
            "`both`, paper and potstill."
        ),
    ] = "both",
    trials: Annotated[int | None, typer.Option(min=1, help="Number of trials of each algorithm. Default: 10.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Number of processes. Default: one per core.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed; equal seeds give equal results with any number of jobs.")] = 0,
    decisions: Annotated[int | None, typer.Option(min=1, help="Decisions per trial, if not the problem's own.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for results; finished trials are not repeated.")] = Path("results"),
    quick: Annotated[bool, typer.Option("--quick", help="Run at a small scale: 5 trials of 3 updates each.")] = False,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Decisions between two updates, if not the problem's own.")
    ] = None,
    label: Label = None,
    rewards: Rewards = None,
    target: Target = None,
    dose: Dose = None,
    levels: Levels = 20,
    log: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Log of decisions, CSV or Parquet, to replay; with --action and --reward."),
    ] = None,
    action: Annotated[str | None, typer.Option(help="With --log: column of the action.")] = None,
    reward: Annotated[str | None, typer.Option(help="With --log: column of the reward.")] = None,
    propensity: Annotated[
        str | None,
        typer.Option(help="With --log: column of the action's probability. Default: all actions were equally likely."),
    ] = None,
    without: Without = None,
    listing: Annotated[bool, typer.Option("--list", help="List problems and algorithms, and exit.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print results as JSON; progress goes to stderr.")] = False,
) -> None:
    """Run trials of algorithms on problems, and store each when it ends.

    In trials of the same number, all algorithms see the same requests and random draws. Repeat the command to resume a
    run that was stopped.

    Examples:
    potstill lab run --problem wheel --algorithms all --trials 50 --jobs 2 --out results/

    potstill lab run --problem mushroom,warfarin-20 --algorithms linear-ts,linear-ts-il,peers

    potstill lab run --problem flowers.csv --label species --algorithms linear-ts-il

    potstill lab run --problem mushrooms.csv --label class --rewards rewards.csv --batch 500 --algorithms auto-ts-il

    potstill lab run --problem houses.csv --dose price --algorithms continuous-linear-ts-il,vw-cats-32

    potstill lab run --log clicks.csv --action item --reward click --propensity p --algorithms auto-ts-il,peers
    """
    from potstill.lab.problems import OwnTable
    from potstill.lab.runs import RunSpec

    if listing:
        _print_list(as_json)
        return
    if log and (action is None or reward is None):
        fail(f"--log {log}: name the columns of the log with --action COLUMN and --reward COLUMN")
    with exit_on(ValueError, OSError):
        asked = split_names([*(algorithms or []), *(more or [])])
        if algorithms is not None and not asked:
            fail("--algorithms is empty; state `all`, `peers`, or names of --list")
        experiment = RunSpec.of(
            problems=[*split_names(problem), *([log] if log else [])],
            algorithms=asked,
            preset=preset,
            trials=trials,
            decisions=decisions,
            batch=batch,
            seed=seed,
            own=OwnTable(
                label=label,
                target=target,
                dose=dose,
                levels=levels,
                without=tuple(without or ()),
                rewards=rewards,
                action=action,
                reward=reward,
                propensity=propensity,
            ),
            quick=quick,
        )
        console = Console(stderr=as_json)
        ended = run_trials(experiment, jobs or cores(), out, console)
    _print_results(experiment, ended, out, console, as_json=as_json)
    refuse_failures(ended)


def run_trials(experiment: RunSpec, jobs: int, out: Path, console: Console) -> Progress:
    """Run the unfinished trials with a progress bar; Ctrl-C ends the command and names the way to resume."""
    from potstill.lab.runs import display

    make_directory(out)
    with console.status("reading data"):
        experiment.prepare()
    try:
        with display(console) as show, _deferred_interrupt() as check:

            def on_progress(progress: Progress) -> None:
                check()
                show(progress)

            return experiment.run(jobs, out, on_progress=on_progress)
    except KeyboardInterrupt:
        typer.secho(f"stopped; finished trials are stored in {out}: repeat the command to resume", err=True)
        raise typer.Exit(130) from None


def refuse_failures(ended: Progress) -> None:
    """Exit with an error if trials failed."""
    if ended.failures:
        fail(f"{len(ended.failures)} of {ended.total} trials failed; the others are stored")


def failures(ended: Progress) -> list[dict[str, str]]:
    """Failed trials, for JSON."""
    return [{"task": str(failure.task), "error": failure.error} for failure in ended.failures]


def _print_results(experiment: RunSpec, ended: Progress, out: Path, console: Console, *, as_json: bool) -> None:
    from potstill.lab.runs import print_rows

    rows = experiment.summary(out)
    if as_json:
        print_json({"out": str(out), "rows": rows, "skipped": experiment.skipped, "failures": failures(ended)})
    else:
        print_rows(rows, experiment.skipped, console)
        console.print(f"stored in {out}; report it with: potstill lab report {out}", highlight=False, soft_wrap=True)


@contextmanager
def _deferred_interrupt() -> Iterator[Callable[[], None]]:
    """Yield a function that raises KeyboardInterrupt if Ctrl-C was pressed.

    An interrupt raised inside JAX's callback of the garbage collector is lost, since Python ignores its exceptions.
    """
    pressed: list[int] = []

    def check() -> None:
        if pressed:
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:  # as in the background of a shell
        signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield check
    finally:
        signal.signal(signal.SIGINT, before)


def cores() -> int:
    """Number of cores that this process may use, as far as the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def split_names(names: Names | None) -> Names:
    """Names separated by commas; a name that is a file is not split."""
    parts = ([name] if Path(name).is_file() else name.split(",") for name in names or [])
    return [part for some in parts for part in some if part]


def _print_list(as_json: bool) -> None:
    from potstill.lab.problems import NUMBERS, SCENARIOS
    from potstill.lab.runs import ALGORITHMS

    if as_json:
        problems = [
            {"name": s.name, "title": s.title, "decisions": s.decisions, "batch": s.batch}
            for s in (SCENARIOS | NUMBERS).values()
        ]
        algorithms = [{"name": a.name, "about": a.about, "presets": a.presets} for a in ALGORITHMS.values()]
        print_json({"problems": problems, "algorithms": algorithms})
        return
    console = Console()
    table = Table("problem", "what", "decisions", "update every", title="Problems", title_justify="left")
    for one in (SCENARIOS | NUMBERS).values():
        table.add_row(one.name, one.title, f"{one.decisions:,}", f"{one.batch:,}")
    console.print(table)
    console.print(
        "and wheel-DELTA, such as wheel-0.5, video-8m for a longer log, or a table with --label, --target or --dose\n",
        highlight=False,
    )
    table = Table("algorithm", "what", "presets", title="Algorithms", title_justify="left")
    for algorithm in ALGORITHMS.values():
        table.add_row(algorithm.name, algorithm.about, ", ".join(algorithm.presets))
    console.print(table)


@lab.command()
@requires("lab")
def data(
    out: Annotated[Path | None, typer.Option(help="Folder to download to. Default: a cache.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Only print where the files are.")] = False,
    as_json: AsJson = False,
) -> None:
    """Download the data sets that are missing, and print where each one is.

    They are looked for in the folder named by POTSTILL_DATA, then beside the checkout, then in the cache.
    """
    from potstill.lab.problems import download, located

    # Present files are downloaded again only into a stated folder.
    with exit_on(OSError):
        wanted = [] if show else [file.source for file in located() if out or not file.path]
        for path in download(out, wanted):
            typer.echo(f"downloaded {path}", err=True)
        files = located()
    if as_json:
        print_json(
            [{"name": file.source.name, "place": file.place, "path": file.path and str(file.path)} for file in files]
        )
        return
    for file in files:
        found = f"{file.path} ({file.place})" if file.path else "missing"
        typer.echo(f"{file.source.name}: {found}; {file.source.about}")
    if out and wanted:
        typer.echo(f"to use the downloaded files: export POTSTILL_DATA={out}")


@lab.command()
@requires("lab")
def report(
    results: Annotated[Path, typer.Argument(help="Folder that `potstill lab run` wrote to.")] = Path("results"),
    out: Annotated[Path | None, typer.Option(help="Folder for the report. Default: RESULTS/report.")] = None,
    calls: Annotated[
        int, typer.Option(min=0, help="Number of decisions per latency measurement; 0 skips measurements.")
    ] = 100_000,
    again: Annotated[bool, typer.Option("--again", help="Repeat the measurements of an earlier report.")] = False,
    markdown: Annotated[
        Path | None, typer.Option(help="Write a Markdown page here, with a folder of figures and trials.")
    ] = None,
    notes: Annotated[Path | None, typer.Option(help="Text file with remarks for the report.")] = None,
    as_json: AsJson = False,
    open_report: Annotated[bool, typer.Option("--open/--no-open", help="Open the report in a browser.")] = False,
) -> None:
    """Report finished trials: figures, tables, and decision latency on this machine.

    Writes report.html, figures as PNG, summary.json and results.md, for all problems, presets and algorithms
    that have finished trials.
    """
    from potstill.lab.report import write_report as written

    if not results.is_dir():
        fail(f"there is no folder {results}: run trials first with potstill lab run --out {results}")
    folder = out or results / "report"
    with exit_on(ValueError, OSError):
        remarks = notes.read_text(encoding="utf-8") if notes else ""
    make_directory(folder)
    console = Console(stderr=True)
    with exit_on(ValueError, OSError), console.status("reading") as status:
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
@requires("lab")
def demo(
    decisions: Annotated[int, typer.Option(min=1, help="Total number of uploads.")] = 20_000,
    batch: Annotated[int, typer.Option(min=1, help="Decisions between two updates.")] = 1_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed; equal seeds give equal results, except for timings.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the policy and the report.")] = Path("potstill-demo"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results as JSON; progress goes to stderr.")
    ] = False,
    open_report: Annotated[bool, typer.Option("--open/--no-open", help="Open the report in a browser.")] = False,
) -> None:
    """Demonstrate the full cycle on a simulated upload service.

    A uniform policy decides a batch of uploads, a new policy is distilled from the results, and so on. It is compared
    with undistilled Thompson sampling, uniform choice and the optimum. Writes a policy file and a report page, and
    prints three lines of Python that use the policy.
    """
    from potstill.lab.demo import Demo, run

    make_directory(out)
    report = run(Demo(decisions=decisions, batch=batch, seed=seed), out, as_json=as_json)
    if open_report:
        typer.launch(str(report))
