"""What is kept of a workspace: backup, restore, forget."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from potstill.cli.common import USER_ERRORS, AsJson, Place, exit_on, fail, print_json
from potstill.cli.extras import requires
from potstill.cli.format import plural, size, timestamp
from potstill.cli.root import app

if TYPE_CHECKING:
    from potstill.workspace import Manifest

_TIMES = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]


@app.command()
@requires("lake")
def backup(
    place: Place,
    target: Annotated[str, typer.Argument(metavar="TO", help="Folder or s3://bucket/prefix of the backups.")],
    as_json: AsJson = False,
) -> None:
    """Back up a workspace while everything runs: registry, cuts, tables and configuration.

    This machine's log is flushed first. Only new files are copied, and each is read back. Events that machines have
    acknowledged and not flushed yet are not in it; the output says from when on.

    Example: potstill backup video s3://bucket/backups/video
    """
    from potstill.workspace import Workspace, back_up

    with exit_on(*USER_ERRORS), Console(stderr=True).status("backing up"):
        done = back_up(Workspace(place), target)
    if as_json:
        print_json(done)
        return
    typer.echo(
        f"backed up to {target}: {plural(done.files, 'file')}, {size(done.bytes)}, of which "
        f"{plural(done.new_files, 'file')}, {size(done.new_bytes)}, were copied and read back"
    )
    for log in done.waiting:
        typer.echo(f"not in it: events of log {log.log[:8]} on {log.host} since {timestamp(log.since)}")


@app.command()
@requires("lake")
def restore(
    source: Annotated[str, typer.Argument(metavar="FROM", help="Folder or s3://bucket/prefix of the backups.")],
    place: Annotated[str | None, typer.Argument(metavar="[DIR]", help="New workspace; an empty place.")] = None,
    at: Annotated[
        datetime | None,
        typer.Option(help="Restore the newest backup that is not after this time, UTC.", formats=_TIMES),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Only list the backups.")] = False,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into a new workspace. Every file is verified.

    Examples:
    potstill restore s3://bucket/backups/video --list

    potstill restore s3://bucket/backups/video video-restored --at 2026-11-17T12:00
    """
    from potstill.workspace import list_backups
    from potstill.workspace import restore as restored

    with exit_on(*USER_ERRORS):
        if show:
            _show_all(list_backups(source), as_json=as_json)
            return
        if place is None:
            fail("state where to restore to: potstill restore FROM DIR; --list shows the backups")
        until = None if at is None else int(at.replace(tzinfo=UTC).timestamp() * 1e6)
        with Console(stderr=True).status("restoring"):
            manifest = restored(source, place, until)
    if as_json:
        print_json(_summary(manifest))
        return
    typer.echo(
        f"restored the backup of {timestamp(manifest.time)} to {place}: {plural(len(manifest.files), 'file')}, "
        f"{size(manifest.bytes)}; next: potstill status {place}"
    )


@app.command()
@requires("lake")
def forget(
    place: Place,
    unit: Annotated[str, typer.Option(help="Unit whose events to erase, such as a user.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Erase a unit's decisions, their rewards and observations: from this machine's log and from the lake.

    Policies that have learnt from them stay as they are; the output names them, and what else may hold something.
    If it is interrupted, run it again.

    Example: potstill forget video --unit user-42
    """
    from potstill.workspace import Workspace, forget_unit

    with exit_on(*USER_ERRORS):
        workspace = Workspace(place)
        if not yes:
            typer.confirm(f"erase all events of unit {unit!r} from {workspace.url}, permanently?", abort=True)
        with Console(stderr=True).status("erasing"):
            done = forget_unit(workspace, unit)
    if as_json:
        print_json(done)
        return
    rows = ", ".join(f"{count:,} {table}" for table, count in done.rows.items())
    typer.echo(f"erased {rows}; {plural(done.segments, 'segment')} of the log deleted")
    for line in done.words:
        typer.echo(line)


def _show_all(found: list[Manifest], *, as_json: bool) -> None:
    if as_json:
        print_json([_summary(manifest) for manifest in found])
        return
    for manifest in found:
        files = f"{plural(len(manifest.files), 'file')}, {size(manifest.bytes)}"
        typer.echo(f"{timestamp(manifest.time)}  {manifest.problem}, entry {manifest.entry} of the registry, {files}")
    if not found:
        typer.echo("no backup yet: potstill backup DIR TO makes one")


def _summary(manifest: Manifest) -> dict[str, object]:
    return {
        "time": manifest.time,
        "workspace": manifest.workspace,
        "problem": manifest.problem,
        "entry": manifest.entry,
        "tables": manifest.tables,
        "waiting": manifest.waiting,
        "files": len(manifest.files),
        "bytes": manifest.bytes,
    }
