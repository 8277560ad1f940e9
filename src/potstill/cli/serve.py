"""The decision service: serve, and the tokens of those who call it."""

from __future__ import annotations

import importlib.util
import json
import shlex
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from potstill._version import __version__
from potstill.cli.app import AsJson, app, fail, needs, print_json, refusing
from potstill.cli.common import MENDABLE, Place
from potstill.cli.format import when

if TYPE_CHECKING:
    from potstill.service.process.serve import Service
    from potstill.workspace import Workspace

TokensFile = Annotated[
    str | None,
    typer.Option("--tokens", metavar="FILE", help="A file of tokens for several workspaces, instead of one in each."),
]

token = typer.Typer(name="token", help="Who may call the service.", no_args_is_help=True, rich_markup_mode="markdown")
app.add_typer(token)


@app.command()
def serve(
    places: Annotated[list[str], typer.Argument(metavar="DIR", help="Workspaces: folders, or s3://bucket/prefix.")],
    host: Annotated[str, typer.Option(help="The address to listen on; any but this machine's own needs tokens.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 for any that is free.")] = 8080,
    workers: Annotated[int, typer.Option(min=1, max=256, help="How many processes answer requests.")] = 1,
    update_every: Annotated[
        str | None, typer.Option(metavar="TIME", help="Learn beside it, such as every 10m, at low priority.")
    ] = None,
    cors: Annotated[
        list[str] | None, typer.Option(metavar="ORIGIN", help="A site whose pages may call; repeat for more.")
    ] = None,
    tokens: TokensFile = None,
) -> None:
    """Serve decisions over HTTP, until Ctrl-C.

    Answers with the policy that serves, takes up new versions within seconds, and logs every decision and reward before
    it is acknowledged. The API is shown at /docs.

    Example: potstill serve video --workers 2 --update-every 10m
    """
    with needs("serve"):
        from potstill.service.process.serve import Settings, run
    if update_every is not None and importlib.util.find_spec("jax") is None:
        fail("--update-every learns, which needs 'jax': pip install 'potstill[learn]', or update elsewhere")

    settings = Settings(
        places=tuple(places),
        host=host,
        port=port,
        workers=workers,
        update_every=update_every,
        tokens=tokens,
        cors=tuple(cors or ()),
    )
    with refusing(*MENDABLE):
        code = run(settings, on_ready=_announce, warn=_warn)
    raise typer.Exit(code)


@token.command()
def create(
    place: Place,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it, such as the product that uses it.")],
    scope: Annotated[
        list[str] | None,
        typer.Option(help="What it allows: decide, reward, read, admin; repeat. All but admin if left out."),
    ] = None,
    tokens: TokensFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a token, and print it: the one time that it is shown.

    From the first token on, a running service refuses whoever has none.

    Example: potstill token create video website --scope decide --scope reward
    """
    with needs("serve"):
        from potstill.service.tokens import token_file
        from potstill.workspace import Workspace

    scopes = scope or ["decide", "reward", "read"]
    with refusing(*MENDABLE):
        file = token_file(Workspace(place), tokens)
        made = file.create(name, scopes)
    if as_json:
        print_json({"name": name, "scopes": scopes, "token": made})
        return
    typer.echo(made)
    typer.echo(f"made {name!r} for {', '.join(scopes)}. It is not shown again; only its hash is kept.", err=True)
    typer.echo("Send it as the header  Authorization: Bearer pst_…", err=True)


@token.command(name="list")
def show(place: Place, tokens: TokensFile = None, as_json: AsJson = False) -> None:
    """Show which tokens there are, and what they allow; never the tokens themselves."""
    with needs("serve"):
        from potstill.service.tokens import token_file
        from potstill.workspace import Workspace

    with refusing(*MENDABLE):
        found = token_file(Workspace(place), tokens).read()
    if as_json:
        shown = [{"name": t.name, "scopes": t.scopes, "created": t.created} for t in found or ()]
        print_json({"open": found is None, "tokens": shown})
        return
    if not found:
        state = "no tokens, and so the service is open on loopback" if found is None else "all tokens are revoked"
        typer.echo(f"{state}; make one with  potstill token create {shlex.quote(place)} NAME")
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("name", "scopes", "created"):
        table.add_column(title)
    for kept in found:
        table.add_row(Text(kept.name), ", ".join(kept.scopes), when(kept.created))
    Console().print(table)


@token.command()
def revoke(
    place: Place, name: Annotated[str, typer.Argument(metavar="NAME", help="Of the token.")], tokens: TokensFile = None
) -> None:
    """Make a token useless; running services refuse it within seconds."""
    with needs("serve"):
        from potstill.service.tokens import token_file
        from potstill.workspace import Workspace

    with refusing(*MENDABLE):
        token_file(Workspace(place), tokens).revoke(name)
    typer.echo(f"revoked {name!r}; running services refuse it within seconds")


def _announce(service: Service) -> None:
    """Say where it is, what it serves, and how to call and stop it."""
    typer.echo(f"potstill {__version__} serves on {service.url}")
    for workspace, is_open in zip(service.workspaces, service.open, strict=True):
        typer.echo(f"  {workspace.problem.name}: {_standing(workspace)}, {'open' if is_open else 'tokens needed'}")
    if service.local:
        typer.echo("only this machine can call it")
    typer.echo(f"API: {service.url}/docs   metrics: {service.url}/metrics   stop: Ctrl-C or SIGTERM")
    typer.echo(f"try:\n{_curl(service)}")


def _standing(workspace: Workspace) -> str:
    from potstill.events import now
    from potstill.service.snapshot import read_mode
    from potstill.workspace import experiment_status

    try:
        head = workspace.registry.standing()
        mode = read_mode(workspace.storage, workspace.config.serve)
        found = experiment_status(workspace, now())
    except MENDABLE as error:  # it serves all the same
        return str(error)
    policy = "no policy" if head is None or head.serving is None else f"policy {head.serving}"
    return f"{policy}, mode {mode}{'' if found is None else f', experiment {found.name} ({found.in_words})'}"


def _curl(service: Service) -> str:
    from urllib.parse import quote

    from potstill.service.schemas import example_context

    problem = service.workspaces[0].problem
    body = json.dumps({"id": "first", "context": example_context(problem)})
    token = "" if service.open[0] else ' \\\n    -H "Authorization: Bearer $POTSTILL_TOKEN"'
    return (
        f"  curl {service.url}/v1/{quote(problem.name, safe='')}/decide -H 'Content-Type: application/json'{token} \\\n"
        f"    -d {shlex.quote(body)}"
    )


def _warn(sentence: str) -> None:
    typer.secho(f"potstill: {sentence}", err=True)
