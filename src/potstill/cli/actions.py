"""Actions of a workspace: list, add, retire and remove them while it serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from potstill.cli.common import USER_ERRORS, AsJson, Place, author, default_group, exit_on, fail, print_json
from potstill.cli.extras import requires
from potstill.cli.format import plural
from potstill.cli.root import app
from potstill.cli.versions import Author, Reason

if TYPE_CHECKING:
    from potstill.workspace import ActionsReport

actions = default_group("actions", "list", "Actions of a workspace: list, add, retire and remove them while it serves.")
app.add_typer(actions)

Name = Annotated[str, typer.Argument(metavar="ACTION", help="Name of the action.", show_default=False)]


@actions.command("list", no_args_is_help=True)
@requires("lake")
def list_(place: Place, as_json: AsJson = False) -> None:
    """List the actions of a workspace: whether each is chosen, and what was observed of it.

    `potstill actions add`, `retire` and `remove` change them without a restart: services follow within seconds.
    """
    from potstill.workspace import Workspace, list_actions

    with exit_on(*USER_ERRORS):
        workspace = Workspace(place)
        found = list_actions(workspace)
        observed = observed_by_action(place)
    if as_json:
        print_json(_as_json(found, observed))
        return
    table = Table()
    for name in ("action", "state", "smallest propensity", "observations"):
        table.add_column(name, justify="right" if name in ("smallest propensity", "observations") else "left")
    for one in found.actions:
        table.add_row(one.action, one.state, f"{one.least:.3g}", f"{observed.get(one.action, 0):,}")
    Console().print(table)
    gone = {name: count for name, count in observed.items() if name not in {one.action for one in found.actions}}
    for name, count in gone.items():
        typer.echo(f"{plural(count, 'observation')} of {name!r}, which is no action any more, are left out")


@actions.command()
@requires("lake")
def add(
    place: Place,
    action: Name,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="ACTION",
            help="Begin at the next update as this action, with a tenth of its observations: the same expectation, "
            "less certain. Needs a teacher that keeps each action apart, such as linear-ts.",
            show_default=False,
        ),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            help="Share of decisions that are drawn uniformly from all actions until the next update; of K actions the "
            "new one gets this share divided by K. 0 waits for the update. Default: policy.new_action_share.",
            show_default=False,
        ),
    ] = None,
    reason: Reason = "",
    by: Author = None,
    as_json: AsJson = False,
) -> None:
    """Add an action, or bring a retired one back, while the workspace serves.

    It is the last of problem.toml, whose comments stay. A version that is adapted to it is published; services follow
    within seconds, and lose no request. What is known of the other actions is kept. The next update learns it.

    Example: potstill actions add video 2160p --share 0.05 --reason "4k screens"
    """
    from potstill.workspace import add_action

    _apply(lambda: add_action(place, action, like=like, share=share, reason=reason, by=author(by)), as_json=as_json)


@actions.command()
@requires("lake")
def retire(place: Place, action: Name, reason: Reason = "", by: Author = None, as_json: AsJson = False) -> None:
    """Choose an action no longer, and keep what was observed of it.

    It stays in problem.toml: its observations still teach, requests may still name it, and potstill actions add brings
    it back. It is chosen only for requests that allow nothing else.

    Example: potstill actions retire video 360p
    """
    from potstill.workspace import retire_action

    _apply(lambda: retire_action(place, action, reason=reason, by=author(by)), as_json=as_json)


@actions.command()
@requires("lake")
def remove(
    place: Place,
    action: Name,
    reason: Reason = "",
    by: Author = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, although observations are left out.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take an action out of the problem. What was observed of it stays in the lake, and is left out of updates.

    Requests that name it are refused from then on, and so are devices that still choose it: retire it first, and
    remove it when no device has a policy with it. potstill actions add brings it back with its observations.

    Example: potstill actions remove video 360p
    """
    from potstill.workspace import Workspace, list_actions, remove_action

    with exit_on(*USER_ERRORS):
        present = {one.action for one in list_actions(Workspace(place)).actions}
        count = observed_by_action(place).get(action, 0) if action in present else 0
    if count and not yes:
        left_out = f"{plural(count, 'observation')} of {action!r} will be left out of learning and evaluation"
        if as_json:
            fail(f"{left_out}; confirm it with --yes")
        typer.confirm(f"{left_out}. potstill actions retire keeps them. Remove it?", abort=True)
    changed = lambda: remove_action(place, action, reason=reason, by=author(by))  # noqa: E731
    _apply(changed, as_json=as_json, left_out=count)


def _apply(change: Callable[[], ActionsReport], *, as_json: bool, left_out: int | None = None) -> None:
    with exit_on(*USER_ERRORS):
        found = change()
    if as_json:
        more = {} if left_out is None else {"left_out": left_out}
        print_json({**msgspec.to_builtins(found), "changed": found.changed, **more})
        return
    typer.echo(found.text)
    if left_out:
        typer.echo(f"{plural(left_out, 'observation')} of it are left out from now on")
    if found.serving is None:
        typer.echo("no version is published yet; the first one follows problem.toml")
    elif found.changed:
        typer.echo(f"version {found.serving} serves; running services follow within seconds")


def observed_by_action(place: str) -> dict[str, int]:
    """Number of observations of each action in the lake."""
    from potstill.events.lake import count_by_action
    from potstill.workspace import Workspace

    return count_by_action(Workspace(place).lake)


def _as_json(found: ActionsReport, observed: dict[str, int]) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(found)
    for one in told["actions"]:
        one["observations"] = observed.get(one["action"], 0)
    return told
