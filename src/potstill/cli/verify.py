"""Verification and repair of a workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from potstill.cli.common import USER_ERRORS, AsJson, Place, author, exit_on, print_json
from potstill.cli.extras import requires
from potstill.cli.format import plural, size
from potstill.cli.root import app

if TYPE_CHECKING:
    from potstill.workspace import VerifyReport

#: Exit code if damage was found and is not repaired.
DAMAGED = 2


@app.command()
@requires("lake")
def verify(
    place: Place,
    repair: Annotated[
        bool, typer.Option("--repair", help="Put damaged files aside, restore their rows, record lost entries.")
    ] = False,
    seal: Annotated[
        bool, typer.Option("--seal", help="Record checksums of files of earlier versions that have none.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Read everything that a workspace stores, and say what is damaged: lake, cuts, registry and log.

    Exit code 2 if anything is damaged. `--repair` takes damaged files out of the lake, keeps their bytes in quarantine,
    and restores their rows from compacted files, the log, or decisions and rewards, as far as these are still there.
    """
    from potstill.workspace import Workspace
    from potstill.workspace import repair as repaired
    from potstill.workspace import verify as verified

    with exit_on(*USER_ERRORS), Console(stderr=True).status("verifying"):
        workspace = Workspace(place)
        report = repaired(workspace, by=author(None)) if repair else verified(workspace, seal=seal)
    if as_json:
        print_json({"damage": report.damage, "report": report})
    else:
        _print(report)
    if report.damage:
        raise typer.Exit(DAMAGED)


def _print(report: VerifyReport) -> None:
    for line in report.repaired:
        typer.echo(f"repaired: {line}")
    for fault in report.damage:
        typer.secho(fault, err=True, fg=typer.colors.RED)
    for note in report.waiting:
        typer.echo(note)
    for table in report.tables:
        typer.echo(f"{table.table}: {plural(table.files, 'file')}, {size(table.bytes)}")
    if report.unchecked:
        typer.echo(
            f"{plural(report.unchecked, 'file')} without a checksum, written by an earlier version: readable, but "
            "changes cannot be seen; --seal records their checksums as they are now"
        )
    if report.quarantine:
        typer.echo(f"{plural(len(report.quarantine), 'file')} of damaged bytes in quarantine/ beside the log")
    damages = len(report.damage)
    typer.echo(f"{plural(damages, 'damage')} found" if damages else "no damage found")
