"""The Typer application, and what its commands share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
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

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


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


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Say what to install when a command's libraries are not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "potstill").split(".")[0] == "potstill":
            raise
        fail(f"this command needs {error.name!r}, which is not installed: pip install 'potstill[{extra}]'")


@contextmanager
def refusing(*errors: type[Exception]) -> Iterator[None]:
    """Turn what a user can mend into one line on stderr."""
    try:
        yield
    except typer.Exit:
        raise
    except errors as error:
        fail(str(error))


def make_directory(path: Path) -> None:
    """Make a folder for what a command writes."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"cannot make the directory {path}: {error.strerror}; name another one with --out")


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def fail(message: str) -> NoReturn:
    """End the command with a message and exit code 1."""
    typer.secho(f"potstill: {message}", err=True, fg=typer.colors.RED)
    raise typer.Exit(1)
