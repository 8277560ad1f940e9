"""The status command: of a workspace, or of this installation."""

from __future__ import annotations

import platform
from typing import Annotated

import typer

from potstill._version import __version__
from potstill.cli.common import USER_ERRORS, AsJson, exit_on, fail, print_json
from potstill.cli.extras import EXTRAS, is_installed, requires
from potstill.cli.root import app


@app.command()
def status(
    place: Annotated[str | None, typer.Argument(metavar="[DIR]", help="Workspace. Default: this installation.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the status of a workspace: serving version, fidelity, pending events, and whether an update is due.

    Without a workspace: the version, the runtime that decides, and the installed extras.
    """
    if place is None:
        _installation(as_json)
    else:
        _workspace(place, as_json)


def _installation(as_json: bool) -> None:
    from potstill.policy import default, why_not_native

    why_not = why_not_native()
    extras = {extra: is_installed(extra) for extra in EXTRAS}
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
        typer.echo(f"{extra:10} {state} ({EXTRAS[extra].purpose})")


@requires("lake")
def _workspace(place: str, as_json: bool) -> None:
    from potstill.cli.update_terminal import show_status
    from potstill.pipeline import read_status as found
    from potstill.problem import InvalidProblem
    from potstill.workspace import InvalidConfig, Workspace

    with exit_on(*USER_ERRORS):
        try:
            workspace = Workspace(place)
        except (InvalidConfig, InvalidProblem) as error:
            fail(f"{error}; potstill versions, pause, pin and rollback work nevertheless")
        if is_installed("learn"):
            from potstill.pipeline import check_learning

            check_learning(workspace)
        show_status(found(workspace), as_json=as_json, space=workspace.problem.actions)
