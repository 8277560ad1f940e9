"""The root of the command line: the Typer application and its global options."""

from __future__ import annotations

from typing import Annotated

import typer

from potstill._version import __version__

app = typer.Typer(
    name="potstill",
    help="Thompson sampling, distilled in batches into a small explicit policy.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"potstill {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
