"""A new workspace: init."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from potstill.cli.common import USER_ERRORS, AsJson, Place, exit_on, fail, print_json
from potstill.cli.extras import requires
from potstill.cli.root import app

if TYPE_CHECKING:
    from potstill.workspace import Workspace


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
