"""The demo command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from potstill.cli.app import app, make_directory, needs


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
        from potstill.lab.demo.demo import Demo
        from potstill.lab.demo.terminal import run
    make_directory(out)
    report = run(Demo(decisions=decisions, batch=batch, seed=seed), out, as_json=as_json)
    if open_report:
        typer.launch(str(report))
