"""The lab's bake-off: algorithms on all tables of a folder."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console

from potstill.cli.common import exit_on, fail, make_directory, print_json
from potstill.cli.extras import requires
from potstill.cli.lab import Levels, Names, cores, failures, lab, refuse_failures, run_trials, split_names
from potstill.cli.lab_studies import AsJson, Jobs, Seed, print_table

if TYPE_CHECKING:
    from potstill.lab.studies import bakeoff as study
    from potstill.pages import Page


@lab.command()
@requires("lab")
def bakeoff(
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FOLDER|FILES…]",
            help="CSV and Parquet tables, or folders of them. Default: the folder `tables` of the lab's data.",
            show_default=False,
        ),
    ] = None,
    label: Annotated[
        Names | None,
        typer.Option(
            metavar="[FILE=]COLUMN", help="Column of the class label, of one file or of all; repeat for more files."
        ),
    ] = None,
    target: Annotated[
        Names | None,
        typer.Option(
            metavar="[FILE=]COLUMN", help="Column of an amount to choose among levels; repeat for more files."
        ),
    ] = None,
    levels: Levels = 20,
    without: Annotated[
        Names | None, typer.Option(help="Column to ignore in the tables that have it; repeat for more.")
    ] = None,
    algorithms: Annotated[
        Names | None,
        typer.Option(
            help="Names of `lab run --list`, `all` or `peers`; repeat, or separate by commas. Default: Potstill's "
            "default, four other distilled teachers, and all peers."
        ),
    ] = None,
    decisions: Annotated[
        int | None, typer.Option(min=1, help="Decisions per trial. Default: 10,000, or the rows if they are fewer.")
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(min=1, help="Decisions between two updates. Default: 1,000 from 10,000 decisions on, else 100."),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Number of trials of each algorithm on each table.")] = 5,
    jobs: Jobs = None,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="Folder for results; finished trials are not repeated.")] = Path("bakeoff"),
    as_json: AsJson = False,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in a browser.")] = False,
) -> None:
    """Compare algorithms on all tables of a folder: regret, relative regret, and who beats whom.

    Each row of a table is a request and its label the right action. Algorithms see only the reward of what they chose.
    The label is a column called label, target, class or y; else the only column of names; else the last column, or the
    first, if it has few values. The command prints what it took, and refuses a table where that is unclear.

    Two algorithms are compared on each table by a paired t-test over trials. Writes OUT/bakeoff/bakeoff.html, .md and
    .json. Repeat the command to resume a run that was stopped; potstill lab report OUT shows the regret curves.

    Examples:
    potstill lab bakeoff --jobs 2

    potstill lab bakeoff my-tables/ --label flowers.csv=species --label cars.csv=make --trials 10

    potstill lab bakeoff flowers.csv --algorithms auto-ts-il,lightgbm-egreedy,vw-regcb-opt --decisions 2000

    potstill lab bakeoff patients.csv --target dose_mg --levels 20 --batch 200
    """
    from potstill.lab.problems import tables
    from potstill.lab.runs import RunSpec
    from potstill.lab.studies import bakeoff as study

    with exit_on(ValueError, OSError):
        asked = study.Asked(
            labels=_by_file(label, "--label"),
            targets=_by_file(target, "--target"),
            levels=levels,
            without=tuple(without or ()),
        )
        entered = study.entries(study.table_files(places or [tables()]), asked)
        console = Console(stderr=as_json)
        _print_labels(entered, console)
        spec = RunSpec.on(
            [one.scenario(decisions, batch) for one in entered],
            algorithms=split_names(algorithms) or list(study.ALGORITHMS_BY_DEFAULT),
            preset="potstill",
            trials=trials,
            seed=seed,
        )
        ended = run_trials(spec, jobs or cores(), out, console)
        found = study.results(entered, spec, out)
        page = _written(found, out / "bakeoff")
    if as_json:
        print_json({"out": str(out), "failures": failures(ended), **msgspec.to_builtins(found)})
    else:
        _print_found(found, page, console)
    if open_page:
        typer.launch(str(page))
    refuse_failures(ended)


def _by_file(stated: Sequence[str] | None, option: str) -> dict[str, str]:
    """Columns by file name; "" stands for all files."""
    columns: dict[str, str] = {}
    for text in stated or ():
        # A column's name may hold "=", and a file's name has an ending.
        file, is_of_file, column = text.partition("=")
        name, column = (Path(file).name, column) if is_of_file and Path(file).suffix else ("", text)
        if not column:
            fail(f"{option} {text}: state the column, as in {option} {name or 'table.csv'}=COLUMN")
        if name in columns:
            fail(f"{option} {text}: {name or 'all files'} already has {columns[name]!r}; give one column for each file")
        columns[name] = column
    return columns


def _print_labels(entered: Sequence[study.Entry], console: Console) -> None:
    for one in entered:
        what, column = next(iter(one.decides.stated.items()))
        console.print(f"{one.name}: {what} {column} ({one.why})", highlight=False, markup=False, soft_wrap=True)


def _written(found: study.BakeOff, folder: Path) -> Path:
    """Write the page, its figures, the results as JSON, and a Markdown file; the path of the page."""
    from potstill.lab.report import write_markdown
    from potstill.lab.studies import bakeoff_charts as charts
    from potstill.pages import png

    make_directory(folder)
    page: Page = charts.page(found, ["potstill", *sys.argv[1:]])
    page.write(folder / "bakeoff.html")
    (folder / "bakeoff.json").write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    for name, figure in page.figures.items():
        (folder / f"{name}.png").write_bytes(png(figure, width=700))
    write_markdown(folder / "bakeoff.md", page, folder)
    return folder / "bakeoff.html"


def _print_found(found: study.BakeOff, page: Path, console: Console) -> None:
    from potstill.lab.studies import bakeoff_charts as charts

    console.print("\nRegret relative to the best algorithm of each table, and significant wins and losses:")
    print_table(charts.standings(found), console)
    console.print("Mean regret ± two standard errors:")
    print_table(charts.regrets(found), console)
    for name, reason in found.skipped.items():
        console.print(f"left out: {name}: {reason}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"matrix of wins and losses: see {page}", highlight=False, soft_wrap=True)
