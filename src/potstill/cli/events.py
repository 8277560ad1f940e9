"""The events of a workspace: an overview, and maintenance of the log and the lake."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from potstill.cli.common import USER_ERRORS, AsJson, Place, author, default_group, exit_on, fail, print_json
from potstill.cli.extras import requires
from potstill.cli.format import duration, plural, size, timestamp
from potstill.cli.root import app

if TYPE_CHECKING:
    from potstill.events import Watermark
    from potstill.workspace import Overview


events = default_group("events", "show", "Show logged events, and maintain the log and the lake.")
app.add_typer(events)


@events.command(no_args_is_help=True)
@requires("lake")
def show(place: Place, as_json: AsJson = False) -> None:
    """Show how many events are in the lake, how many are still in this machine's log, and errors.

    Maintenance: `flush` moves the log into the lake now, `compact` merges small files, `vacuum` deletes unused files,
    `expire` drops old days.
    """
    from potstill.workspace import Workspace, overview

    with exit_on(*USER_ERRORS):
        found = overview(Workspace(place))
    if as_json:
        print_json(found)
        return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, line in _lines(found):
        table.add_row(name, Text(line))
    Console().print(table)


@events.command()
@requires("lake")
def flush(place: Place, as_json: AsJson = False) -> None:
    """Move this machine's log into the lake now.

    Updates and the service do this on their own. A segment that a process is writing stays in the log until it is
    closed, within seconds.
    """
    from potstill.workspace import Workspace

    with exit_on(*USER_ERRORS):
        workspace = Workspace(place)
        spool = workspace.segments
        report = workspace.flusher().flush()
        left = spool.pending()
    if as_json:
        print_json(report)
    else:
        rows = f"{plural(report.decisions, 'decision')} and {plural(report.rewards, 'reward')}"
        typer.echo(f"moved {rows} in {plural(report.segments, 'segment')} from the log into the lake")
        for damage in report.cut:
            typer.secho(damage, err=True, fg=typer.colors.RED)
        if left.segments:
            typer.echo(f"{plural(left.segments, 'segment')} still in the log, {size(left.bytes)}")
    if report.error:
        fail(f"some segments could not be moved and stay in the log: {report.error}")


@events.command()
@requires("lake")
def logs(
    place: Place,
    gone: Annotated[
        str | None, typer.Option(metavar="ID", help="Declare this log gone for good: updates do not wait for it.")
    ] = None,
    reason: Annotated[str, typer.Option(help="With --gone: why; kept with the declaration.")] = "",
    by: Annotated[str | None, typer.Option(help="With --gone: who declares it. Default: the user.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the logs of all machines, and how far each of them is in the lake.

    An update joins only what all open logs have passed. A log that does not report for longer than log.lease in
    potstill.toml is passed; `--gone ID` passes it at once. It counts again when its machine flushes again.

    Example: potstill events logs video --gone 3f2a91c0 --reason "disk lost"
    """
    from potstill.workspace import Workspace

    with exit_on(*USER_ERRORS):
        watermarks = Workspace(place).watermarks
        if gone is not None:
            watermarks.declare_gone(gone, author(by), reason)
        found = watermarks.all()
    if as_json:
        print_json(found)
        return
    for mark in found:
        typer.echo(f"{mark.log}  {mark.host}  {_log_state(mark)}")
    if not found:
        typer.echo("no log yet: a service or an EventLog of this workspace makes the first")


@events.command()
@requires("lake")
def compact(place: Place, as_json: AsJson = False) -> None:
    """Merge small files of the lake, so that reading stays fast.

    Safe at any time. The small files stay until `potstill events vacuum`, for readers that still use them.
    """
    from potstill.events.lake import compact as compacted
    from potstill.workspace import Workspace

    with exit_on(*USER_ERRORS), Console(stderr=True).status("compacting"):
        done = compacted(Workspace(place).lake)
    if as_json:
        print_json(done)
        return
    for one in done:
        sizes = f"{size(one.bytes_before)} → {size(one.bytes_after)}"
        typer.echo(f"{one.table}: {one.files_before:,} → {one.files_after:,} files, {sizes}")
    if not done:
        typer.echo("the lake is empty: nothing to compact")


@events.command()
@requires("lake")
def vacuum(
    place: Place,
    older_than: Annotated[
        str, typer.Option(help="Time that a file must have been unused: at least an hour, such as 7d.")
    ] = "7d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be deleted.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete files that no table of the lake and no version uses: left by compaction, expiry, lost races or crashes.

    No event is lost, and no file of a version.
    """
    from potstill.events.lake import vacuum as vacuumed
    from potstill.problem import seconds
    from potstill.workspace import Workspace

    with exit_on(*USER_ERRORS), Console(stderr=True).status("vacuuming"):
        workspace = Workspace(place)
        done = vacuumed(workspace.lake, seconds(older_than, "--older-than"), dry_run=dry_run)
        strays = workspace.registry.sweep(recent=None, dry_run=dry_run)
    if as_json:
        print_json([*done, {"table": "registry", "files": strays}])
        return
    deleted = "would be deleted" if dry_run else "deleted"
    for one in done:
        typer.echo(f"{one.table}: {plural(len(one.files), 'file')} {deleted}")
    if strays:
        typer.echo(f"registry: {plural(len(strays), 'file')} of publications that did not take place {deleted}")
    if not done:
        typer.echo("the lake is empty: nothing to delete")


@events.command()
@requires("lake")
def expire(
    place: Place,
    older_than: Annotated[str, typer.Option(help="Drop days older than this, such as 400d.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Drop decisions and rewards of old days from the lake, permanently.

    Observations stay, so that policies can be reproduced. Dropped decisions can no longer be audited; those that no
    update has joined yet are never learnt from. `vacuum` frees the space.
    """
    from potstill.events.lake import expire as expired
    from potstill.problem import seconds
    from potstill.workspace import Workspace

    with exit_on(*USER_ERRORS):
        workspace, age = Workspace(place), seconds(older_than, "--older-than")
        final = workspace.problem.reward.window_seconds + workspace.config.join.settle_seconds
        if age <= final:
            limit = f"must exceed {duration(final)}, within which rewards of a decision still count"
            raise ValueError(f"--older-than {older_than}: {limit}")
        if not yes:
            typer.confirm(f"drop decisions and rewards older than {older_than}, permanently?", abort=True)
        done = expired(workspace.lake, age)
    if as_json:
        print_json(done)
        return
    for one in done:
        typer.echo(f"{one.table}: dropped {one.rows:,} rows of days before {one.before}")
    if not done:
        typer.echo("the lake is empty: nothing to drop")


def _log_state(mark: Watermark) -> str:
    if mark.gone is not None:
        return f"declared gone by {mark.gone.by} at {timestamp(mark.gone.time)}: {mark.gone.reason}"
    if not mark.open:
        return f"closed at {timestamp(mark.written)}; everything is in the lake"
    return f"open; everything before {timestamp(mark.time)} is in the lake; last report {timestamp(mark.written)}"


def _lines(found: Overview) -> Iterator[tuple[str, str]]:
    for table, rows in found.rows.items():
        yield table, "unknown" if rows is None else f"{rows:,} in the lake"
    if found.lake_error:
        yield "lake", found.lake_error
    yield "log", _log_line(found)
    flushed = found.flush
    yield "last flush", "never" if flushed is None else timestamp(flushed.time)
    if flushed is not None and flushed.last_error and flushed.last_error_time:
        yield "last error", f"{timestamp(flushed.last_error_time)}: {flushed.last_error}"
    if found.quarantine:
        files = f"{plural(len(found.quarantine), 'file')}, {size(found.quarantine_bytes)}"
        yield "quarantine", f"{files} of unreadable bytes, in quarantine/ beside the log"


def _log_line(found: Overview) -> str:
    if found.lag_seconds is None:
        return f"empty: all events are in the lake ({found.spool})"
    waiting = f"{plural(found.segments, 'segment')} not in the lake yet, {size(found.bytes)}"
    return f"{waiting}, the oldest for {duration(found.lag_seconds)}, in {found.spool}"
