"""The events of a workspace: what is in the lake, what is on its way there, and the upkeep of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from potstill.cli.app import AsJson, app, fail, needs, print_json, refusing
from potstill.cli.common import MENDABLE, Place
from potstill.cli.format import counted, length, size, when

if TYPE_CHECKING:
    from potstill.workspace.overview import Overview


class ShowsByDefault(TyperGroup):
    """``potstill events DIR`` is ``potstill events show DIR``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command in where it was left out."""
        named = not args or args[0] in self.commands or args[0] in ctx.help_option_names
        return super().parse_args(ctx, args if named else ["show", *args])


events = typer.Typer(
    name="events",
    cls=ShowsByDefault,
    help="What has been logged, and its upkeep. `potstill events DIR` is `potstill events show DIR`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(events)


@events.command()
def show(place: Place, as_json: AsJson = False) -> None:
    """Show what is in the lake, what is only in the log of this machine yet, and what went wrong."""
    with needs("lake"):
        from potstill.workspace import Workspace
        from potstill.workspace.overview import overview

    with refusing(*MENDABLE):
        found = overview(Workspace(place))
    if as_json:
        print_json(found)
        return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, line in _lines(found):
        table.add_row(name, Text(line))
    Console().print(table)


@events.command()
def flush(place: Place, as_json: AsJson = False) -> None:
    """Move what this machine has logged into the lake now.

    Updates do it by themselves. A segment that a process is still writing stays until it is closed, which
    is a matter of seconds.
    """
    with needs("lake"):
        from potstill.events.lake import Flusher
        from potstill.events.wal import Spool
        from potstill.workspace import Workspace

    with refusing(*MENDABLE):
        workspace = Workspace(place)
        spool = Spool(workspace.spool)
        report = Flusher(spool, workspace.lake).flush()
        left = spool.pending()
    if as_json:
        print_json(report)
    else:
        rows = f"{counted(report.decisions, 'decision')} and {counted(report.rewards, 'reward')}"
        typer.echo(f"moved {rows} from {counted(report.segments, 'segment')} of the log into the lake")
        for damage in report.cut:
            typer.secho(damage, err=True, fg=typer.colors.RED)
        if left.segments:
            typer.echo(f"{counted(left.segments, 'segment')} still in the log, {size(left.bytes)}")
    if report.error:
        fail(f"not everything could be moved; it stays in the log. {report.error}")


@events.command()
def compact(place: Place, as_json: AsJson = False) -> None:
    """Put small files of the lake together, so that reading it stays fast.

    Can be done at any time. The small files stay until `potstill events vacuum`, for those who are reading them.
    """
    with needs("lake"):
        from potstill.events.lake import compact as compacted
        from potstill.workspace import Workspace

    with refusing(*MENDABLE), Console(stderr=True).status("compacting"):
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
def vacuum(
    place: Place,
    older_than: Annotated[
        str, typer.Option(help="How long a file must have been out of use: at least an hour, such as 7d.")
    ] = "7d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete files that no table of the lake uses any more. No event is lost by it; for that see `expire`.

    They are what compaction replaced, what expired, and what crashes left.
    """
    with needs("lake"):
        from potstill.events.lake import vacuum as vacuumed
        from potstill.problem import seconds
        from potstill.workspace import Workspace

    with refusing(*MENDABLE), Console(stderr=True).status("vacuuming"):
        done = vacuumed(Workspace(place).lake, seconds(older_than, "--older-than"), dry_run=dry_run)
    if as_json:
        print_json(done)
        return
    for one in done:
        typer.echo(f"{one.table}: {counted(len(one.files), 'file')} {'would be ' if dry_run else ''}deleted")
    if not done:
        typer.echo("the lake is empty: nothing to delete")


@events.command()
def expire(
    place: Place,
    older_than: Annotated[
        str, typer.Option(help="The age of a day from which on it is dropped, such as 400d.", show_default=False)
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Drop decisions and rewards of old days from the lake, for good.

    Observations stay: they are what policies were learnt from. Decisions that are gone cannot be audited any more, and
    those that no update has joined yet are never learnt from. The space is free after the next `vacuum`.
    """
    with needs("lake"):
        from potstill.events.lake import expire as expired
        from potstill.problem import seconds
        from potstill.workspace import Workspace

    with refusing(*MENDABLE):
        workspace, age = Workspace(place), seconds(older_than, "--older-than")
        final = workspace.problem.reward.window_seconds + workspace.config.join.settle_seconds
        if age <= final:
            raise ValueError(f"--older-than {older_than}: rewards still count for {length(final)} after a decision")
        if not yes:
            typer.confirm(f"drop decisions and rewards that are older than {older_than}, for good?", abort=True)
        done = expired(workspace.lake, age)
    if as_json:
        print_json(done)
        return
    for one in done:
        typer.echo(f"{one.table}: {one.rows:,} rows of days before {one.before} are gone")
    if not done:
        typer.echo("the lake is empty: nothing to drop")


def _lines(found: Overview) -> Iterator[tuple[str, str]]:
    for table, rows in found.rows.items():
        yield table, "unknown" if rows is None else f"{rows:,} in the lake"
    if found.lake_error:
        yield "lake", found.lake_error
    yield "log", _log_line(found)
    flushed = found.flush
    yield "last flush", "never" if flushed is None else when(flushed.time)
    if flushed is not None and flushed.last_error and flushed.last_error_time:
        yield "last error", f"{when(flushed.last_error_time)}: {flushed.last_error}"
    if found.quarantine:
        files = f"{counted(len(found.quarantine), 'file')}, {size(found.quarantine_bytes)}"
        yield "quarantine", f"{files} that could not be read, beside the log in quarantine/"


def _log_line(found: Overview) -> str:
    if found.lag_seconds is None:
        return f"everything is in the lake, nothing left in {found.spool}"
    waiting = f"{counted(found.segments, 'segment')} not in the lake yet, {size(found.bytes)}"
    return f"{waiting}, the oldest for {length(found.lag_seconds)}, in {found.spool}"
