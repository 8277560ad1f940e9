"""Updates, and checks of past ones: update, reproduce, audit, warm-start."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.console import Console

from potstill.cli.common import USER_ERRORS, AsJson, Place, exit_on, fail, say
from potstill.cli.extras import requires
from potstill.cli.root import app


@app.command()
@requires("lake", "learn")
def update(
    place: Place,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what it would do.")] = False,
    stage: Annotated[bool, typer.Option("--stage", help="Publish, but do not serve it yet.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Update also with few or no new observations. Pins and pauses hold.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until interrupted.")] = False,
    every: Annotated[str, typer.Option(help="With --watch: time between two updates.")] = "10m",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for another update of this workspace to end.")] = False,
    trust_clock: Annotated[
        bool,
        typer.Option("--trust-clock", help="Accept this machine's clock although it was set since the last flush."),
    ] = False,
    engine: Annotated[str, typer.Option(help="Where to compute: local (this process) or ray.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="With --engine ray: address of a cluster, or auto. Default: start Ray here.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Learn from logged events, distil a new policy, and serve it.

    Moves the log into the lake, joins rewards to decisions whose window has closed, updates the teacher, distils a
    policy from it, checks and publishes it. A policy that fails a check is stored but does not serve (exit code 2).
    An update can be killed at any time: the next one resumes.

    Example: potstill update video --watch --every 10m
    """
    from potstill.cli.update_terminal import show_report, steps
    from potstill.events import ImplausibleClock
    from potstill.pipeline import preview_update
    from potstill.pipeline import run_update as updated
    from potstill.pipeline.engines import EngineFailed, MissingEngine, open_engine
    from potstill.problem import seconds
    from potstill.registry import Conflict
    from potstill.workspace import Workspace

    console = Console(stderr=as_json)
    with exit_on(*USER_ERRORS, EngineFailed, MissingEngine, timed=watch):
        pause = seconds(every, "--every")
        if dry_run and watch:
            fail("--dry-run prints what one update would do; leave out --watch")
        if dry_run:
            show_report(preview_update(Workspace(place)), console, as_json=as_json)
            return
        while True:
            try:
                with open_engine(engine, address) as opened, steps(console) as on_step:
                    if opened.dashboard:
                        console.print(f"dashboard: {opened.dashboard}", highlight=False)
                    workspace = Workspace(place)
                    report = updated(
                        workspace,
                        stage=stage,
                        force=force,
                        wait=wait or watch,
                        trust_clock=trust_clock,
                        on_step=on_step,
                        engine=opened,
                        every=pause if watch else None,
                    )
                show_report(report, console, as_json=as_json, timed=watch, space=workspace.problem.actions)
            except Conflict as error:  # somebody rolled back, pinned or published meanwhile
                if not watch:
                    raise
                say(f"{error} at the next update", timed=True)
            except ImplausibleClock as error:
                if not watch:
                    raise
                say(str(error), timed=True)
            trust_clock = False  # once
            if not watch:
                raise typer.Exit(2 if report.outcome == "refused" else 0)
            time.sleep(pause)


@app.command()
@requires("lake", "learn")
def reproduce(
    place: Place,
    version: Annotated[int, typer.Argument(help="Version to reproduce; see potstill versions.")],
    as_json: AsJson = False,
) -> None:
    """Reproduce a version from its lineage, and compare it byte for byte.

    Exit code 2 if it differs.
    """
    from potstill.cli.update_terminal import show_reproduction
    from potstill.pipeline import reproduce_version as reproduced
    from potstill.workspace import Workspace

    console = Console(stderr=as_json)
    with exit_on(*USER_ERRORS), console.status(f"reproducing version {version}"):
        found = reproduced(Workspace(place), version)
    show_reproduction(found, console, as_json=as_json)
    raise typer.Exit(0 if found.identical else 2)


@app.command()
@requires("lake")
def audit(place: Place, as_json: AsJson = False) -> None:
    """Recompute every logged propensity from its context and policy version.

    Exit code 2 if any differs.
    """
    from potstill.cli.update_terminal import rows, show_audit
    from potstill.pipeline import run_audit as audited
    from potstill.workspace import Workspace

    console = Console(stderr=as_json)
    with exit_on(*USER_ERRORS), rows(console, "decisions") as on_progress:
        found = audited(Workspace(place), on_progress)
    show_audit(found, console, as_json=as_json)
    raise typer.Exit(0 if found.clean else 2)


@app.command()
@requires("lake")
def warm_start(
    place: Place,
    log: Annotated[str, typer.Argument(help="Historical log: .csv, .parquet, or a Delta Lake folder.")],
    action: Annotated[str, typer.Option(help="Column of the action.")] = "action",
    reward: Annotated[str, typer.Option(help="Column of the reward.")] = "reward",
    propensity: Annotated[
        str | None,
        typer.Option(help="Column of the propensity, or of a number's density. Default: propensity, if it exists."),
    ] = None,
    moment: Annotated[
        str | None, typer.Option("--time", help="Column of the time. Default: rows are in order.")
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(help="NAME=COLUMN, if a feature's column has another name; repeat for more."),
    ] = None,
    skip_unfit: Annotated[
        bool, typer.Option("--skip-unfit", help="Skip rows that do not fit the problem, instead of refusing the log.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Import a historical log as observations, so that the first update has data.

    Columns have the names of the problem's features unless `--feature` says otherwise. Without propensities, each
    action's share of the log is used, or a histogram of a number. The next update learns from the import.

    Example: potstill warm-start video uploads-2025.csv --action quality --reward watched
    """
    from potstill.cli.update_terminal import rows, show_import
    from potstill.pipeline import import_history as started
    from potstill.tables import Columns, scan_table
    from potstill.workspace import Workspace

    console = Console(stderr=as_json)
    with exit_on(*USER_ERRORS), rows(console, "rows") as on_progress:
        if propensity is None and "propensity" in scan_table(log).collect_schema():
            propensity = "propensity"
        columns = Columns(action=action, reward=reward, propensity=propensity, time=moment, features=_pairs(feature))
        found = started(Workspace(place), log, columns, skip=skip_unfit, on_progress=on_progress)
    show_import(found, console, as_json=as_json)


def _pairs(stated: list[str] | None) -> dict[str, str]:
    pairs = [text.partition("=") for text in stated or []]
    for name, equals, column in pairs:
        if not (name and equals and column):
            fail(f"--feature must be NAME=COLUMN, got {name + equals + column!r}")
    return {name: column for name, _, column in pairs}
