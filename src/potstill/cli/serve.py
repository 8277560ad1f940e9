"""The decision service, and the tokens of its callers."""

from __future__ import annotations

import importlib.util
import json
import shlex
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from potstill._version import __version__
from potstill.cli.common import USER_ERRORS, AsJson, Place, exit_on, fail, print_json, say
from potstill.cli.extras import requires
from potstill.cli.format import timestamp
from potstill.cli.root import app

if TYPE_CHECKING:
    from potstill.service.process import Service
    from potstill.workspace import Workspace

TokensFile = Annotated[
    str | None,
    typer.Option("--tokens", metavar="FILE", help="File of tokens for all workspaces. Default: one in each."),
]

token = typer.Typer(
    name="token", help="Create, list and revoke tokens of callers.", no_args_is_help=True, rich_markup_mode="markdown"
)
app.add_typer(token)


@app.command()
@requires("serve")
def serve(
    places: Annotated[list[str], typer.Argument(metavar="DIR", help="Workspaces: folders, or s3://bucket/prefix.")],
    host: Annotated[str, typer.Option(help="Address to listen on; addresses other than loopback need tokens.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any free one.")] = 8080,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Number of worker processes.")] = 1,
    update_every: Annotated[
        str | None, typer.Option(metavar="TIME", help="Run updates at this interval, such as 10m, at low priority.")
    ] = None,
    stage: Annotated[
        bool, typer.Option("--stage", help="With --update-every: publish new versions, but do not serve them.")
    ] = False,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Start from a uniform policy where problem.toml has changed so that none fits. Releases a pin.",
        ),
    ] = False,
    cors: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="Origin whose pages may call; repeat for more.")
    ] = None,
    personalizer: Annotated[
        bool,
        typer.Option(
            "--personalizer", help="Also answer the requests of Azure Personalizer v1.0 below /personalizer/v1.0/."
        ),
    ] = False,
    tokens: TokensFile = None,
) -> None:
    """Serve decisions over HTTP until Ctrl-C.

    Decides by the serving version, follows new versions within seconds, and logs every decision and reward to disk
    before it answers. The API is documented at /docs.

    Example: potstill serve video --workers 2 --update-every 10m
    """
    from potstill.service.process import Settings, run

    if update_every is not None and importlib.util.find_spec("jax") is None:
        fail("--update-every needs 'jax': pip install 'potstill[learn]', or update on another machine")

    settings = Settings(
        places=tuple(places),
        host=host,
        port=port,
        workers=workers,
        update_every=update_every,
        stage=stage,
        fresh=fresh,
        tokens=tokens,
        cors=tuple(cors or ()),
        personalizer=personalizer,
    )
    with exit_on(*USER_ERRORS):
        code = run(settings, on_ready=partial(_announce, personalizer=personalizer), warn=partial(say, timed=True))
    raise typer.Exit(code)


@token.command()
@requires("serve")
def create(
    place: Place,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token, such as the product that uses it.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(help="decide, reward, read or admin; repeat for more. Default: all but admin."),
    ] = None,
    tokens: TokensFile = None,
    as_json: AsJson = False,
) -> None:
    """Create a token and print it. It is shown only this once.

    From the first token on, a running service refuses requests without one.

    Example: potstill token create video website --scope decide --scope reward
    """
    from potstill.service import token_file
    from potstill.workspace import Workspace

    scopes = scope or ["decide", "reward", "read"]
    with exit_on(*USER_ERRORS):
        file = token_file(Workspace(place), tokens)
        made = file.create(name, scopes)
    if as_json:
        print_json({"name": name, "scopes": scopes, "token": made})
        return
    typer.echo(made)
    typer.echo(f"created {name!r} for {', '.join(scopes)}; it is not shown again: only its hash is stored", err=True)
    typer.echo("Send it as the header  Authorization: Bearer pst_…", err=True)


@token.command(name="list")
@requires("serve")
def show(place: Place, tokens: TokensFile = None, as_json: AsJson = False) -> None:
    """List tokens and their scopes; never the tokens themselves."""
    from potstill.service import token_file
    from potstill.workspace import Workspace

    with exit_on(*USER_ERRORS):
        found = token_file(Workspace(place), tokens).read()
    if as_json:
        shown = [{"name": t.name, "scopes": t.scopes, "created": t.created} for t in found or ()]
        print_json({"open": found is None, "tokens": shown})
        return
    if not found:
        state = "no tokens: the service is open on loopback" if found is None else "all tokens are revoked"
        typer.echo(f"{state}; create one with  potstill token create {shlex.quote(place)} NAME")
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("name", "scopes", "created"):
        table.add_column(title)
    for kept in found:
        table.add_row(Text(kept.name), ", ".join(kept.scopes), timestamp(kept.created))
    Console().print(table)


@token.command()
@requires("serve")
def revoke(
    place: Place,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the token.")],
    tokens: TokensFile = None,
) -> None:
    """Revoke a token; running services refuse it within seconds."""
    from potstill.service import token_file
    from potstill.workspace import Workspace

    with exit_on(*USER_ERRORS):
        token_file(Workspace(place), tokens).revoke(name)
    typer.echo(f"revoked {name!r}; running services refuse it within seconds")


@token.command(name="open")
@requires("serve")
def open_again(
    place: Place,
    tokens: TokensFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Revoke all tokens and let callers in without one, after a restart of the service.

    A workspace that had tokens stays closed without them: this is the only way to open it.
    """
    from potstill.service import token_file
    from potstill.workspace import Workspace

    with exit_on(*USER_ERRORS):
        file = token_file(Workspace(place), tokens)
        yes or typer.confirm(f"Revoke all tokens in {file.url}, and let every caller in?", abort=True)
        file.open()
    typer.echo("opened; running services stay closed until they are restarted")


def _announce(service: Service, *, personalizer: bool = False) -> None:
    """Print the address, the workspaces, and how to call and stop the service."""
    typer.echo(f"potstill {__version__} serves on {service.url}")
    for workspace, is_open in zip(service.workspaces, service.open, strict=True):
        access = "open" if is_open else "tokens needed"
        typer.echo(f"  {workspace.problem.name}: {_workspace_state(workspace)}, {access}")
    if service.local:
        typer.echo("reachable from this machine only")
    typer.echo(f"pages: {service.url}/   API: {service.url}/docs   metrics: {service.url}/metrics")
    if personalizer:
        typer.echo(f"personalizer: {service.url}/personalizer/v1.0/   endpoint of its clients: {service.url}")
    typer.echo("stop: Ctrl-C or SIGTERM")
    typer.echo(f"try:\n{_curl(service)}")


def _workspace_state(workspace: Workspace) -> str:
    from potstill.events import now
    from potstill.service import read_mode
    from potstill.workspace import experiment_status

    try:
        head = workspace.registry.standing()
        mode = read_mode(workspace.storage, workspace.config.serve).mode
        found = experiment_status(workspace, now())
    except USER_ERRORS as error:  # the service runs all the same
        return str(error)
    policy = "no policy" if head is None or head.serving is None else f"policy {head.serving} ({_decides(workspace)})"
    if head is not None and head.pinned is not None:
        policy += f", pinned {head.pinned.in_words}"
    if head is not None and head.paused is not None:
        policy += f", updates paused {head.paused.in_words}"
    return f"{policy}, mode {mode}{'' if found is None else f', experiment {found.name} ({found.in_words})'}"


def _decides(workspace: Workspace) -> str:
    from potstill.workspace import in_words

    try:
        return in_words(workspace.registry.policy())
    except USER_ERRORS as error:
        return str(error)


def _curl(service: Service) -> str:
    from urllib.parse import quote

    from potstill.service import example_context

    problem = service.workspaces[0].problem
    body = json.dumps({"id": "first", "context": example_context(problem)})
    token = "" if service.open[0] else ' \\\n    -H "Authorization: Bearer $POTSTILL_TOKEN"'
    return (
        f"  curl {service.url}/v1/{quote(problem.name, safe='')}/decide -H 'Content-Type: application/json'{token} \\\n"
        f"    -d {shlex.quote(body)}"
    )
