"""A workspace and its versions: init, versions, rollback, promote."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from potstill.cli.common import USER_ERRORS, AsJson, Place, exit_on, fail, print_json
from potstill.cli.extras import requires
from potstill.cli.format import timestamp
from potstill.cli.root import app

if TYPE_CHECKING:
    from potstill.registry import Entry, Version
    from potstill.workspace import Workspace

#: Number of versions that are listed without --all.
LISTED = 20

Note = Annotated[str, typer.Option(help="Reason, stored in the registry's history.")]


@app.command()
@requires("lake")
def init(
    place: Place,
    problem: Annotated[
        Path | None,
        typer.Option(help="Your problem.toml, or a policy file with the problem. Default: an example."),
    ] = None,
    example: Annotated[
        bool, typer.Option("--example", help="Also log a simulated day of uploads, to try the other commands on.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create a workspace: a problem, a configuration with every option explained, events and policies.

    Examples:
    potstill init try --example

    potstill init s3://bucket/video --problem problem.toml
    """
    from potstill.workspace import Workspace, template

    if example and problem:
        fail("--example has a problem of its own; remove --problem")
    with exit_on(*USER_ERRORS):
        text = template.PROBLEM.encode() if problem is None else _problem_text(problem)
        workspace = Workspace.create(place, text, template.CONFIG.encode())
        events = _log_example(workspace) if example else 0
    if as_json:
        made = workspace.problem
        print_json({"workspace": workspace.url, "problem": made.name, "hash": made.hash, "events": events})
        return
    typer.echo(f"created a workspace for {workspace.problem.name!r} in {workspace.url}")
    typer.echo(_try_it(place, events) if example else _next_steps(workspace, place, own=problem is not None))


@app.command()
@requires("lake")
def versions(
    place: Place,
    every: Annotated[bool, typer.Option("--all", help=f"List all versions, not only the latest {LISTED}.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the versions of a workspace: which one serves, the fidelity of each, and why some were refused."""
    from potstill.workspace import Workspace

    with exit_on(*USER_ERRORS):
        workspace = Workspace(place)
        head = workspace.registry.standing()
        serving, latest = (head.serving, head.latest) if head else (None, 0)
        after = -1 if every else max(latest - LISTED, -1)
        found, damage = workspace.registry.versions(after), workspace.registry.damage(max(after, 0))
    if as_json:
        print_json({"serving": serving, "latest": latest, "versions": found, "damage": damage})
        return
    for fault in damage:
        typer.secho(fault, err=True, fg=typer.colors.RED)
    if not found:
        typer.echo(f"no versions yet; potstill update {shlex.quote(place)} makes the first")
        return
    Console().print(_table(found, workspace.problem.hash))
    if after >= 0:
        typer.echo(f"the latest {LISTED} versions; --all lists all")
    note = f": {head.note}" if head and head.note else ""
    typer.echo("no version serves yet" if serving is None else f"version {serving} serves{note}")


@app.command()
@requires("lake")
def rollback(
    place: Place,
    to: Annotated[int | None, typer.Option(help="Version to return to. Default: the one that served before.")] = None,
    note: Note = "",
    as_json: AsJson = False,
) -> None:
    """Return to a version that served before. Repeat to go further back.

    The next update publishes and serves a new version.
    """
    from potstill.workspace import Workspace

    with exit_on(*USER_ERRORS):
        _print_serving(Workspace(place).registry.rollback(to, note), as_json=as_json)


@app.command()
@requires("lake")
def promote(
    place: Place,
    version: Annotated[int, typer.Argument(help="Version; see potstill versions.", show_default=False)],
    note: Note = "",
    as_json: AsJson = False,
) -> None:
    """Serve a version: a staged one, or a refused one that you trust nevertheless."""
    from potstill.workspace import Workspace

    with exit_on(*USER_ERRORS):
        _print_serving(Workspace(place).registry.serve(version, note), as_json=as_json)


def _problem_text(file: Path) -> bytes:
    """The text of a problem, from its file or from a policy file."""
    import tomli_w

    from potstill.policy import InvalidPolicy, Policy

    if file.suffix == ".toml":
        return file.read_bytes()
    try:
        return tomli_w.dumps(msgspec.to_builtins(Policy.load(file).problem)).encode()
    except InvalidPolicy as error:
        raise ValueError(f"{error}; --problem must be a .toml file or a policy file") from None


def _log_example(workspace: Workspace) -> int:
    from potstill.workspace import log_example

    return log_example(workspace)


def _try_it(place: str, events: int) -> str:
    where = shlex.quote(place)
    return f"""and logged {events:,} events of a simulated day. Next:
  potstill events {where}      show logged events
  potstill update {where}      learn from them, and serve a new policy
  potstill versions {where}    list the versions"""


def _next_steps(workspace: Workspace, place: str, *, own: bool) -> str:
    where = shlex.quote(place)
    first = "read potstill.toml" if own else "replace the example problem.toml by yours, and read potstill.toml"
    context = {feature.name: feature.example for feature in workspace.problem.context}
    reward = 1.0 if workspace.problem.reward.high is None else workspace.problem.reward.high
    return f"""Next:
  1. {first}: it explains every option
  2. decide and log, in Python:
       from potstill.events import LoggedDecision, LoggedReward
       from potstill.workspace import Workspace
       workspace = Workspace({place!r})
       policy = workspace.start()
       context = {context!r}
       with workspace.event_log() as log:
           decision = policy.decide(context)
           log.append(LoggedDecision.of(decision, context))
           log.append(LoggedReward(id=decision.id, reward={reward}))  # once it is known
  3. potstill events {where}    show logged events
  4. potstill update {where}    learn from them, and serve a new policy"""


def _table(found: list[Version], problem: str) -> Table:
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


def _print_serving(entry: Entry, *, as_json: bool) -> None:
    if as_json:
        print_json(msgspec.to_builtins(entry))
        return
    typer.echo(f"version {entry.serving} serves now")
    if entry.reasons:
        typer.echo(f"it had been refused: {'; '.join(entry.reasons)}")
