"""The lab's studies: how imitation improves with contexts and labels, and how often to update."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table as RichTable

from potstill.cli.app import fail, make_directory, needs, print_json, refusing
from potstill.cli.lab import Label, Levels, Target, Without, cores, lab

if TYPE_CHECKING:
    from potstill.lab.problems import Scenario
    from potstill.pages import Page, Table

Problem = Annotated[str, typer.Option(help="A simulated problem of `lab run --list`, or a table of your own.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Processes; one per core if left out.")]
Seed = Annotated[int, typer.Option(min=0, help="Equal seeds give equal results, whatever the jobs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON; progress to stderr.")]
Quick = Annotated[bool, typer.Option("--quick", help="On a small scale; options that are given hold.")]

QUICK_RATES: dict[str, Any] = {"contexts": (250, 1000, 4000, 16000), "labels": (1, 16, 256), "repeats": 2}
QUICK_CADENCE: dict[str, Any] = {
    "decisions": 3_000,
    "batches": (100, 300, 1000),
    "delays": (0, 1000),
    "trials": 2,
}


@lab.command()
def rates(
    problem: Problem = "video",
    contexts: Annotated[str | None, typer.Option(help="N, separated by commas; 250 to 64,000 if left out.")] = None,
    labels: Annotated[
        str | None, typer.Option(help="N_a per context, separated by commas; exact ones come too.")
    ] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="Of contexts, labels and training; 4 if left out.")] = None,
    jobs: Jobs = None,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="Folder for the page, its figures and the data.")] = Path("potstill-rates"),
    quick: Quick = False,
    label: Label = None,
    target: Target = None,
    levels: Levels = 20,
    without: Without = None,
    as_json: AsJson = False,
) -> None:
    """See how a distilled policy nears its teacher with more contexts and labels.

    Held-out divergence from Linear-TS against the number of contexts N, with exact labels and with N_a sampled ones per
    context, and the fitted powers beside those of the paper's bound, 1/N + 1/√(N·N_a).
    """
    with needs("lab"):
        from potstill.lab.studies import rates as study
        from potstill.lab.studies import rates_charts as charts
    with refusing(ValueError, OSError):
        given = {
            "contexts": _numbers(contexts, "--contexts"),
            "labels": _numbers(labels, "--labels"),
            "repeats": repeats,
        }
        settings = study.Rates(problem=problem, seed=seed, **_chosen(given, QUICK_RATES if quick else {}))
        environment = _scenario(problem, label, target, levels, without, settings.decisions + 1).environment()
        if contexts is None:
            settings = settings.fitted(environment)
        make_directory(out)
        console = Console(stderr=as_json)
        found = study.study(settings, environment, _mapped(jobs, settings.steps, "distilling", console))
        page = charts.page(found)
        _write(page, found, out / "rates")
    if as_json:
        print_json(found)
        return
    _print(charts.slopes(found), console)
    _print(charts.worth(found), console)
    _conclude(page, out / "rates.html", console)


@lab.command()
def cadence(
    problem: Problem = "video",
    decisions: Annotated[int | None, typer.Option(min=1, help="In a trial; 20,000 if left out.")] = None,
    batches: Annotated[
        str | None, typer.Option(help="Decisions between updates, separated by commas; 100,300,1000,3000 if left out.")
    ] = None,
    delays: Annotated[
        str | None, typer.Option(help="Of rewards, in decisions, separated by commas; 0,1000,5000 if left out.")
    ] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Of each batch and delay; 4 if left out.")] = None,
    algorithm: Annotated[
        str, typer.Option(help="As in `lab run`; linear-ts is undistilled, which takes seconds instead of minutes.")
    ] = "linear-ts-il",
    preset: Annotated[str, typer.Option(help="Hyperparameters: `paper` or `potstill`.")] = "potstill",
    per_day: Annotated[int | None, typer.Option(min=1, help="Decisions a day, to tell periods as time.")] = None,
    jobs: Jobs = None,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="Folder for the page, its figures and the data.")] = Path(
        "potstill-cadence"
    ),
    quick: Quick = False,
    label: Label = None,
    target: Target = None,
    levels: Levels = 20,
    without: Without = None,
    as_json: AsJson = False,
) -> None:
    """Choose how often to update, before a launch.

    Simulated regret against the decisions between updates and the delay of rewards, beside the work of updating. A
    delay of 1,000 decisions means that a reward is known once 1,000 more decisions have been taken.

    Examples:
    potstill lab cadence --problem video --per-day 50000

    potstill lab cadence --problem flowers.csv --label species --algorithm linear-ts --trials 20
    """
    with needs("lab"):
        from potstill.lab.studies import cadence as study
        from potstill.lab.studies import cadence_charts as charts
    with refusing(ValueError, OSError):
        given = {
            "decisions": decisions,
            "batches": _numbers(batches, "--batches"),
            "delays": _numbers(delays, "--delays"),
            "trials": trials,
        }
        chosen = _chosen(given, QUICK_CADENCE if quick else {})
        settings = study.Cadence(problem=problem, algorithm=algorithm, preset=preset, seed=seed, **chosen)
        environment = _scenario(problem, label, target, levels, without, settings.decisions).environment
        make_directory(out)
        console, units = Console(stderr=as_json), charts.Units(per_day)
        found = study.study(settings, environment, _mapped(jobs, settings.steps, "batches", console))
        page = charts.page(found, units)
        _write(page, found, out / "cadence")
    if as_json:
        print_json({**msgspec.to_builtins(found), "advice": charts.advice(found, units)})
        return
    console.print(
        f"Regret of {settings.decisions:,} decisions, by decisions between updates (across) and delay of rewards "
        f"(down); cost against the first cell; and time spent on updates in {units.of_work}. "
        f"Uniform choice: {charts.amount(found.uniform)}.\n",
        highlight=False,
    )
    _print(charts.pivot(found, units), console)
    for sentence in charts.advice(found, units):
        console.print(f"{sentence}\n", highlight=False)
    _conclude(page, out / "cadence.html", console)


def _numbers(text: str | None, option: str) -> tuple[int, ...] | None:
    """Whole numbers from an option, in ascending order."""
    if text is None:
        return None
    try:
        return tuple(sorted({int(word.replace("_", "")) for word in text.replace(" ", ",").split(",") if word}))
    except ValueError:
        fail(f"{option} takes whole numbers that are separated by commas, such as 100,1000; got {text!r}")


def _chosen(given: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """What was given, over the defaults."""
    return {**defaults, **{name: value for name, value in given.items() if value is not None}}


def _scenario(
    name: str, label: str | None, target: str | None, levels: int, without: list[str] | None, decisions: int
) -> Scenario:
    """A problem by name or of a table, large enough for so many decisions."""
    from potstill.lab.problems import OwnTable, find_scenario, refuse_unused

    own = OwnTable(label=label, target=target, levels=levels, without=tuple(without or ()))
    found = find_scenario(name, own, decisions)
    refuse_unused(own, [found])
    return found


def _mapped(jobs: int | None, steps: int, title: str, console: Console) -> Any:
    """How a study is to run its tasks."""
    from potstill.parallel import watched

    count = jobs or cores()
    return lambda function, tasks: watched(function, tasks, jobs=count, steps=steps, title=title, console=console)


def _write(page: Page, found: Any, stem: Path) -> None:
    """The page, its figures, and all that was found."""
    from potstill.pages import png

    page.write(stem.with_suffix(".html"))
    stem.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2))
    for name, figure in page.figures.items():
        stem.with_name(f"{stem.name}-{name}.png").write_bytes(png(figure, width=700))


def _print(table: Table, console: Console) -> None:
    shown = RichTable(box=None, pad_edge=False)
    for column, title in enumerate(table.header):
        shown.add_column(title, justify="right" if table.is_numeric(column) else "left", no_wrap=True)
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)
    console.print()


def _conclude(page: Page, path: Path, console: Console) -> None:
    console.print(f"{page.title}: see {path}", highlight=False, soft_wrap=True)
