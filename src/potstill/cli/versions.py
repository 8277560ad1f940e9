"""Versions of a workspace: list, roll back, promote, pin; and pause updates."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from potstill.cli.common import USER_ERRORS, AsJson, Place, author, exit_on, print_json, say
from potstill.cli.extras import requires
from potstill.cli.format import timestamp
from potstill.cli.root import app

if TYPE_CHECKING:
    from potstill.registry import Entry, Version
    from potstill.workspace import RegistryAccess

#: Number of versions that are listed without --all.
LISTED = 20

Reason = Annotated[str, typer.Option("--reason", "--note", help="Reason, stored in the registry's history.")]
Author = Annotated[str | None, typer.Option(help="Who asks for it, stored with the reason. Default: the system user.")]


@app.command()
@requires("lake")
def versions(
    place: Place,
    every: Annotated[bool, typer.Option("--all", help=f"List all versions, not only the latest {LISTED}.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the versions of a workspace: which one serves, the fidelity of each, and why some were refused."""
    with exit_on(*USER_ERRORS):
        access = _access(place)
        registry = access.registry
        head = registry.standing()
        serving, latest = (head.serving, head.latest) if head else (None, 0)
        after = -1 if every else max(latest - LISTED, -1)
        found, damage = registry.versions(after), registry.damage(max(after, 0))
    if as_json:
        print_json({"serving": serving, "latest": latest, "versions": found, "damage": damage})
        return
    for fault in damage:
        typer.secho(fault, err=True, fg=typer.colors.RED)
    if not found:
        typer.echo(f"no versions yet; potstill update {shlex.quote(place)} makes the first")
        return
    Console().print(_table(found, access.problem_hash))
    if after >= 0:
        typer.echo(f"the latest {LISTED} versions; --all lists all")
    note = f": {head.note}" if head and head.note else ""
    typer.echo("no version serves yet" if serving is None else f"version {serving} serves{note}")
    if head is not None:
        _print_holds(head)


@app.command()
@requires("lake")
def rollback(
    place: Place,
    to: Annotated[int | None, typer.Option(help="Version to return to. Default: the one that served before.")] = None,
    reason: Reason = "",
    by: Author = None,
    as_json: AsJson = False,
) -> None:
    """Return to a version that served before, and pin it. Repeat to go further back.

    Updates stage their versions until potstill unpin or potstill promote.
    """
    from potstill.workspace import is_uniform

    with exit_on(*USER_ERRORS):
        registry = _access(place).registry
        entry = registry.rollback(to, reason, author(by))
        _print_serving(entry, as_json=as_json)
        if not as_json and is_uniform(registry.policy(entry.serving)):
            typer.echo(f"version {entry.serving} is uniform: it has learnt nothing")


@app.command()
@requires("lake")
def promote(
    place: Place,
    version: Annotated[int, typer.Argument(help="Version; see potstill versions.", show_default=False)],
    reason: Reason = "",
    by: Author = None,
    as_json: AsJson = False,
) -> None:
    """Serve a version: a staged one, or a refused one that you trust nevertheless.

    It releases a pin: the next version that an update publishes serves.
    """
    with exit_on(*USER_ERRORS):
        _print_serving(_access(place).registry.serve(version, reason, author(by)), as_json=as_json)


@app.command()
@requires("lake")
def pin(
    place: Place,
    version: Annotated[int | None, typer.Option(help="Version to serve and pin. Default: the serving one.")] = None,
    reason: Reason = "",
    by: Author = None,
    as_json: AsJson = False,
) -> None:
    """Keep a version serving: updates still learn and publish, but stage their versions.

    potstill unpin and potstill promote release the pin.
    """
    with exit_on(*USER_ERRORS):
        _print_serving(_access(place).registry.pin(version, reason, author(by)), as_json=as_json)


@app.command()
@requires("lake")
def unpin(place: Place, reason: Reason = "", by: Author = None, as_json: AsJson = False) -> None:
    """Release the pin: the next version that an update publishes serves."""
    with exit_on(*USER_ERRORS):
        registry = _access(place).registry
        before = registry.standing()
        entry = registry.unpin(reason, author(by))
        _print_serving(entry, as_json=as_json, nothing="no version is pinned" if entry == before else None)


@app.command()
@requires("lake")
def pause(place: Place, reason: Reason = "", by: Author = None, as_json: AsJson = False) -> None:
    """Pause updates: none is made, here or by a service, until potstill resume. Logging continues."""
    with exit_on(*USER_ERRORS):
        _print_serving(_access(place).registry.pause(reason, author(by)), as_json=as_json)


@app.command()
@requires("lake")
def resume(place: Place, reason: Reason = "", by: Author = None, as_json: AsJson = False) -> None:
    """End a pause of updates."""
    with exit_on(*USER_ERRORS):
        registry = _access(place).registry
        before = registry.standing()
        entry = registry.resume(reason, author(by))
        _print_serving(entry, as_json=as_json, nothing="updates are not paused" if entry == before else None)


def _table(found: list[Version], problem: str | None) -> Table:
    table = Table()
    for name in ("version", "state", "when", "parent", "observations", "held-out KL", "reasons"):
        table.add_column(name, justify="right" if name in ("version", "parent", "observations") else "left")
    for one in found:
        state = one.state if one.problem == problem else f"{one.state}, other problem"
        table.add_row(
            str(one.version),
            Text(state, style="bold green" if one.state == "serving" else ""),
            timestamp(one.time),
            "" if one.parent is None else str(one.parent),
            f"{one.observations:,}",
            "" if one.kl is None else f"{one.kl:.2g}",
            Text("; ".join(one.reasons)),
        )
    return table


def _access(place: str) -> RegistryAccess:
    """The registry; a broken problem.toml is said, and does not matter."""
    from potstill.workspace import open_registry

    access = open_registry(place)
    if access.notice is not None:
        say(access.notice, fg=typer.colors.YELLOW)
    return access


def _print_serving(entry: Entry, *, as_json: bool, nothing: str | None = None) -> None:
    """Print what serves after a change.

    Args:
        entry: The last entry.
        as_json: Whether to print the entry as JSON.
        nothing: Why nothing was changed; None if something was.
    """
    if as_json:
        print_json(msgspec.to_builtins(entry))
        return
    if nothing is not None:
        typer.echo(f"{nothing}: nothing to release; version {entry.serving} serves")
        _print_holds(entry)
        return
    typer.echo(f"version {entry.serving} serves now")
    if entry.reasons:
        typer.echo(f"it had been refused: {'; '.join(entry.reasons)}")
    _print_holds(entry)


def _print_holds(entry: Entry) -> None:
    """Say who pinned the serving version, and who paused updates."""
    if entry.pinned is not None:
        typer.echo(f"version {entry.serving} is pinned {entry.pinned.in_words}")
        typer.echo("updates stage their versions until potstill unpin or potstill promote")
    if entry.paused is not None:
        typer.echo(f"updates are paused {entry.paused.in_words}")
