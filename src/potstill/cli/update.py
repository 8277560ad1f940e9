"""The update, and what looks back at it: update, reproduce, audit, warm-start."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Console

from potstill.cli.app import AsJson, app, fail, needs, refusing
from potstill.cli.common import MENDABLE, Place


@app.command()
def update(
    place: Place,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would do, and do nothing.")] = False,
    stage: Annotated[bool, typer.Option("--stage", help="Publish, but let the version before serve on.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also with few or no new observations.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again and again, until stopped.")] = False,
    every: Annotated[str, typer.Option(help="With --watch: the time between two updates.")] = "10m",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another update to end.")] = False,
    engine: Annotated[str, typer.Option(help="Where to work: local, in this process; or ray.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="With --engine ray: a cluster, or auto; started on this machine if left out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Learn from what was logged, distil a new policy, and let it serve.

    Moves the log into the lake, joins rewards to the decisions whose window has closed, teaches the teacher, imitates
    it, checks the new policy and publishes it. One that fails a check is kept but does not serve (exit code 2). An
    update can be stopped or killed at any moment: the next one picks up.

    Example: potstill update video --watch --every 10m
    """
    with needs("lake"), needs("learn"):
        from potstill.cli.update_terminal import show_report, steps
        from potstill.pipeline.engines import EngineFailed, MissingEngine, open_engine
        from potstill.pipeline.update import foresee
        from potstill.pipeline.update import update as updated
        from potstill.problem import seconds
        from potstill.workspace import Workspace

    console = Console(stderr=as_json)
    with refusing(*MENDABLE, EngineFailed, MissingEngine):
        pause = seconds(every, "--every")
        if dry_run:
            show_report(foresee(Workspace(place)), console, as_json=as_json)
            return
        while True:
            with open_engine(engine, address) as opened, steps(console) as on_step:
                if opened.dashboard:
                    console.print(f"dashboard: {opened.dashboard}", highlight=False)
                report = updated(
                    Workspace(place), stage=stage, force=force, wait=wait or watch, on_step=on_step, engine=opened
                )
            show_report(report, console, as_json=as_json)
            if not watch:
                raise typer.Exit(2 if report.outcome == "refused" else 0)
            time.sleep(pause)


@app.command()
def reproduce(
    place: Place,
    version: Annotated[int, typer.Argument(help="The version to make again, of potstill versions.")],
    as_json: AsJson = False,
) -> None:
    """Make a policy again from its lineage, and compare it byte for byte."""
    with needs("lake"), needs("learn"):
        from potstill.cli.update_terminal import show_reproduction
        from potstill.pipeline.reproduce import reproduce as reproduced
        from potstill.workspace import Workspace

    console = Console(stderr=as_json)
    with refusing(*MENDABLE), console.status(f"making version {version} again"):
        found = reproduced(Workspace(place), version)
    show_reproduction(found, console, as_json=as_json)
    raise typer.Exit(0 if found.identical else 2)


@app.command()
def audit(place: Place, as_json: AsJson = False) -> None:
    """Compute every logged propensity again, from its context and the policy version that decided.

    Ends with exit code 2 if anything does not agree.
    """
    with needs("lake"):
        from potstill.cli.update_terminal import rows, show_audit
        from potstill.pipeline.audit import audit as audited
        from potstill.workspace import Workspace

    console = Console(stderr=as_json)
    with refusing(*MENDABLE), rows(console, "decisions") as on_progress:
        found = audited(Workspace(place), on_progress)
    show_audit(found, console, as_json=as_json)
    raise typer.Exit(0 if found.clean else 2)


@app.command()
def warm_start(
    place: Place,
    log: Annotated[str, typer.Argument(help="A historical log: .csv, .parquet, or a folder of Delta Lake.")],
    action: Annotated[str, typer.Option(help="The column of what was done.")] = "action",
    reward: Annotated[str, typer.Option(help="The column of what came of it.")] = "reward",
    propensity: Annotated[
        str | None, typer.Option(help="The column of the probability with which it was done, where that is known.")
    ] = None,
    moment: Annotated[
        str | None, typer.Option("--time", help="The column of when it was done; rows are in order if left out.")
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(help="NAME=COLUMN, for a feature whose column has another name; repeat for more."),
    ] = None,
    skip_unfit: Annotated[
        bool, typer.Option("--skip-unfit", help="Leave out rows that do not fit, instead of refusing the log.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Import a historical log as observations, for the teacher to start from.

    Columns are called as the problem's features are, unless you say otherwise. Without propensities each action's share
    of the log stands in for them. The next update learns from what was imported.

    Example: potstill warm-start video uploads-2025.csv --action quality --reward watched
    """
    with needs("lake"):
        from potstill.cli.update_terminal import rows, show_import
        from potstill.pipeline.warm_start import warm_start as started
        from potstill.tables import Columns
        from potstill.workspace import Workspace

    columns = Columns(action=action, reward=reward, propensity=propensity, time=moment, features=_pairs(feature))
    console = Console(stderr=as_json)
    with refusing(*MENDABLE), rows(console, "rows") as on_progress:
        found = started(Workspace(place), log, columns, skip=skip_unfit, on_progress=on_progress)
    show_import(found, console, as_json=as_json)


def _pairs(stated: list[str] | None) -> dict[str, str]:
    pairs = [text.partition("=") for text in stated or []]
    for name, equals, column in pairs:
        if not (name and equals and column):
            fail(f"--feature must be NAME=COLUMN, got {name + equals + column!r}")
    return {name: column for name, _, column in pairs}
