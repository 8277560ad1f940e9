"""The lab's report command."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from potstill.cli.app import AsJson, fail, make_directory, needs, print_json, refusing
from potstill.cli.lab import lab


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
        from potstill.lab.report.report import report as written
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
