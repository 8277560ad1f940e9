"""The status command: what this installation can do, or how a workspace stands."""

from __future__ import annotations

import importlib.util
import platform
from typing import Annotated

import typer

from potstill._version import __version__
from potstill.cli.app import AsJson, app, needs, print_json, refusing

#: Extra: a module that comes with it, and what it is for.
EXTRAS = {
    "lake": ("deltalake", "workspaces: events, join, registry"),
    "learn": ("jax", "teachers and distillation"),
    "lab": ("altair", "the paper's evaluation, tables of your own, the demo, reports"),
    "onnx": ("onnx", "export to ONNX"),
    "peers": ("vowpalwabbit", "other libraries in the lab, to compare against"),
    "serve": ("uvicorn", "the decision service"),
    "client": ("httpx", "clients of the service"),
    "programs": ("numpyro", "reward models written as probabilistic programs"),
}


@app.command()
def status(
    place: Annotated[
        str | None, typer.Argument(metavar="[DIR]", help="A workspace; this installation if left out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how a workspace stands: what serves, how faithful it is, what waits, and what an update would do now.

    Without a workspace: which runtime decides here, and which extras are installed.
    """
    if place is None:
        _installation(as_json)
    else:
        _workspace(place, as_json)


def _installation(as_json: bool) -> None:
    from potstill.policy.runtime import default, why_not_native

    why_not = why_not_native()
    extras = {extra: importlib.util.find_spec(module) is not None for extra, (module, _) in EXTRAS.items()}
    if as_json:
        print_json(
            {
                "version": __version__,
                "python": platform.python_version(),
                "runtime": default(),
                "native": why_not is None,
                "why_not_native": why_not,
                "extras": extras,
            }
        )
        return
    typer.echo(f"potstill   {__version__} on Python {platform.python_version()}, {platform.machine()}")
    typer.echo(f"decisions  {default()}" + (f": {why_not}" if why_not else ""))
    for extra, there in extras.items():
        state = "installed" if there else f"not installed: pip install 'potstill[{extra}]'"
        typer.echo(f"{extra:10} {state} ({EXTRAS[extra][1]})")


def _workspace(place: str, as_json: bool) -> None:
    from potstill.cli.common import MENDABLE

    with needs("lake"), needs("learn"):
        from potstill.cli.update_terminal import show_status
        from potstill.pipeline.status import status as found
        from potstill.workspace import Workspace

    with refusing(*MENDABLE):
        show_status(found(Workspace(place)), as_json=as_json)
