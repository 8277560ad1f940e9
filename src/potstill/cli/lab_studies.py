"""Studies of the lab: imitation error by contexts and labels, Bayes regret, update frequency, and latency."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table as RichTable

from potstill.cli.common import exit_on, fail, make_directory, print_json
from potstill.cli.extras import requires
from potstill.cli.lab import Label, Levels, Target, Without, cores, lab

if TYPE_CHECKING:
    from potstill.lab.problems import Scenario
    from potstill.pages import Page, Table

Problem = Annotated[str, typer.Option(help="Simulated problem of `lab run --list`, or your own table.")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Number of processes. Default: one per core.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed; equal seeds give equal results with any number of jobs.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print results as JSON; progress goes to stderr.")]
Quick = Annotated[bool, typer.Option("--quick", help="Run at a small scale; stated options take precedence.")]

QUICK_RATES: dict[str, Any] = {"contexts": (250, 1000, 4000, 16000), "labels": (1, 16, 256), "repeats": 2}
QUICK_BAYES: dict[str, Any] = {"trials": 4, "batches": 3}
QUICK_CADENCE: dict[str, Any] = {
    "decisions": 3_000,
    "batches": (100, 300, 1000),
    "delays": (0, 1000),
    "trials": 2,
}


@lab.command()
@requires("lab")
def rates(
    problem: Problem = "video",
    teacher: Annotated[
        str, typer.Option(help="Teacher with exact labels: linear-ts or neural-linear-ts.")
    ] = "linear-ts",
    contexts: Annotated[
        str | None, typer.Option(help="Numbers of contexts, by commas. Default: 250 to 64,000.")
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(help="Sampled labels per context, by commas; exact labels are always included."),
    ] = None,
    repeats: Annotated[int | None, typer.Option(min=1, help="Number of repetitions. Default: 4.")] = None,
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
    """Measure how imitation error falls with more contexts and labels.

    Plots held-out divergence from the teacher against the number of contexts N, with exact labels and with N_a sampled
    labels per context, and compares fitted exponents with the paper's bound, 1/N + 1/√(N·N_a).
    """
    from potstill.lab.studies import rates as study
    from potstill.lab.studies import rates_charts as charts

    with exit_on(ValueError, OSError):
        given = {
            "contexts": _numbers(contexts, "--contexts"),
            "labels": _numbers(labels, "--labels"),
            "repeats": repeats,
        }
        settings = study.Rates(
            problem=problem, teacher=teacher, seed=seed, **_chosen(given, QUICK_RATES if quick else {})
        )
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
    print_table(charts.slopes(found), console)
    print_table(charts.worth(found), console)
    _conclude(page, out / "rates.html", console)


@lab.command()
@requires("lab")
def cadence(
    problem: Problem = "video",
    decisions: Annotated[int | None, typer.Option(min=1, help="Decisions per trial. Default: 20,000.")] = None,
    batches: Annotated[
        str | None, typer.Option(help="Decisions between updates, separated by commas. Default: 100,300,1000,3000.")
    ] = None,
    delays: Annotated[
        str | None, typer.Option(help="Delays of rewards in decisions, separated by commas. Default: 0,1000,5000.")
    ] = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Trials per combination. Default: 4.")] = None,
    algorithm: Annotated[
        str, typer.Option(help="Algorithm of `lab run`; linear-ts is undistilled: seconds instead of minutes.")
    ] = "linear-ts-il",
    preset: Annotated[str, typer.Option(help="Hyperparameters: `paper` or `potstill`.")] = "potstill",
    per_day: Annotated[int | None, typer.Option(min=1, help="Decisions per day, to show periods as times.")] = None,
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
    """Choose an update frequency before a launch.

    Simulates regret by the number of decisions between updates and the delay of rewards, and measures the time of
    updates. A delay of 1,000 decisions means that a reward is known 1,000 decisions later.

    Examples:
    potstill lab cadence --problem video --per-day 50000

    potstill lab cadence --problem flowers.csv --label species --algorithm linear-ts --trials 20
    """
    from potstill.lab.studies import cadence as study
    from potstill.lab.studies import cadence_charts as charts

    with exit_on(ValueError, OSError):
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
        f"(down); cost against the first cell; and time spent on updates per {units.of_work}. "
        f"Uniform choice: {charts.amount(found.uniform)}.\n",
        highlight=False,
    )
    print_table(charts.pivot(found, units), console)
    for sentence in charts.advice(found, units):
        console.print(f"{sentence}\n", highlight=False)
    _conclude(page, out / "cadence.html", console)


@lab.command()
@requires("lab")
def bayes(
    prior: Annotated[str, typer.Option(help="Prior to draw reward functions from: linear or gp.")] = "linear",
    trials: Annotated[int | None, typer.Option(min=2, help="Number of reward functions. Default: 40.")] = None,
    batches: Annotated[int | None, typer.Option(min=1, help="Number of batches. Default: 10.")] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Decisions of a batch. Default: 100.")] = None,
    width: Annotated[int | None, typer.Option(min=1, help="Number of features. Default: 5; gp: 2.")] = None,
    actions: Annotated[int | None, typer.Option(min=2, help="Number of actions. Default: 5.")] = None,
    jobs: Jobs = None,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="Folder for the page, its figures and the data.")] = Path("potstill-bayes"),
    quick: Quick = False,
    as_json: AsJson = False,
) -> None:
    """Measure Bayes regret, and the terms that the paper bounds it by.

    Draws reward functions from the teacher's own prior, runs Thompson sampling, its distilled policy and batch UCB on
    each, and computes the terms of the paper's decomposition beside the measured regret.
    """
    from potstill.lab.studies import bayes as study
    from potstill.lab.studies import bayes_charts as charts

    if prior not in study.PRIORS:
        fail(f"--prior must be one of {', '.join(study.PRIORS)}; got {prior!r}")
    given = {"trials": trials, "batches": batches, "batch": batch, "width": width, "actions": actions}
    defaults = {**({"width": 2} if prior == "gp" else {}), **(QUICK_BAYES if quick else {})}
    with exit_on(ValueError, OSError):
        settings = study.Bayes(prior=prior, seed=seed, **_chosen(given, defaults))
        make_directory(out)
        console = Console(stderr=as_json)
        found = study.study(settings, _mapped(jobs, settings.steps, "batches", console))
        page = charts.page(found)
        _write(page, found, out / f"bayes-{prior}")
    if as_json:
        print_json(found)
        return
    for table in (charts.regret_table(found), charts.terms_table(found), charts.lemma_table(found)):
        print_table(table, console)
    _conclude(page, out / f"bayes-{prior}.html", console)


@lab.command()
@requires("lab")
def latency(
    problem: Annotated[
        str, typer.Option(help="Problems to time decisions on, separated by commas.")
    ] = "mushroom,wheel,video,warfarin-20,warfarin-50",
    algorithms: Annotated[
        str, typer.Option(help="Algorithms of `lab run`, separated by commas.")
    ] = "linear-ts,linear-ts-il,neural-linear-ts,neural-linear-ts-il,bootstrap-nn-ts,bootstrap-nn-ts-il",
    calls: Annotated[int, typer.Option(min=1, help="Number of decisions of each.")] = 100_000,
    out: Annotated[Path, typer.Option(help="Folder for the measurements.")] = Path("potstill-latency"),
    as_json: AsJson = False,
) -> None:
    """Time decisions: as they would be served, and in one language.

    The first tables have the distilled policy in C and Thompson sampling in NumPy, as they would be served. The last
    one has both in NumPy, and both in C if there is a C compiler.
    """
    from potstill.lab.measure import take_measurements
    from potstill.lab.report import alike, latencies, latency_tables, same_language_table
    from potstill.lab.runs import ALGORITHMS

    problems, names = ([word for word in text.split(",") if word] for text in (problem, algorithms))
    if unknown := [name for name in names if name not in ALGORITHMS]:
        fail(f"unknown algorithm {unknown[0]!r}; there are {', '.join(ALGORITHMS)}")
    make_directory(out)
    console = Console(stderr=as_json)
    with exit_on(ValueError, OSError), console.status("measuring") as status:
        measured = take_measurements(out / "measured.json", problems, names, calls, again=True, say=status.update)
    if as_json:
        print_json(measured)
        return
    for table in latency_tables(latencies(measured.latency)):
        console.print(table.caption)
        print_table(table, console)
    print_table(same_language_table(alike(measured.same_language)), console)
    if "c" not in measured.languages:
        console.print("There is no C compiler here, so nothing was timed in C.")


def _numbers(text: str | None, option: str) -> tuple[int, ...] | None:
    """Integers of an option, in ascending order."""
    if text is None:
        return None
    try:
        return tuple(sorted({int(word.replace("_", "")) for word in text.replace(" ", ",").split(",") if word}))
    except ValueError:
        fail(f"{option} must be integers separated by commas, such as 100,1000; got {text!r}")


def _chosen(given: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Stated options over defaults."""
    return {**defaults, **{name: value for name, value in given.items() if value is not None}}


def _scenario(
    name: str, label: str | None, target: str | None, levels: int, without: list[str] | None, decisions: int
) -> Scenario:
    """A problem by name or from a table, with enough rows for the decisions."""
    from potstill.lab.problems import OwnTable, find_scenario, refuse_unused

    own = OwnTable(label=label, target=target, levels=levels, without=tuple(without or ()))
    found = find_scenario(name, own, decisions)
    refuse_unused(own, [found])
    return found


def _mapped(jobs: int | None, steps: int, title: str, console: Console) -> Any:
    """A parallel map with a progress bar, for a study's tasks."""
    from potstill.parallel import parallel_map_with_progress

    count = jobs or cores()
    return lambda function, tasks: parallel_map_with_progress(
        function, tasks, jobs=count, steps=steps, title=title, console=console
    )


def _write(page: Page, found: Any, stem: Path) -> None:
    """Write the page, its figures, and the results as JSON."""
    from potstill.pages import png

    page.write(stem.with_suffix(".html"))
    stem.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2))
    for name, figure in page.figures.items():
        stem.with_name(f"{stem.name}-{name}.png").write_bytes(png(figure, width=700))


def print_table(table: Table, console: Console) -> None:
    """Print a table of a page."""
    shown = RichTable(box=None, pad_edge=False)
    for column, title in enumerate(table.header):
        shown.add_column(title, justify="right" if table.is_numeric(column) else "left", no_wrap=True)
    for row in table.rows:
        shown.add_row(*row)
    console.print(shown)
    console.print()


def _conclude(page: Page, path: Path, console: Console) -> None:
    console.print(f"{page.title}: see {path}", highlight=False, soft_wrap=True)
