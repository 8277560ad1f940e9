"""What commands share: options, output, errors, and groups with a default command."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import typer
from typer.core import TyperGroup

from potstill.cli.format import stamp
from potstill.errors import PotstillError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Place = Annotated[
    str, typer.Argument(metavar="DIR", help="Workspace: a folder, or s3://bucket/prefix.", show_default=False)
]

#: Errors that a user can fix or wait out; they are shown as one line.
USER_ERRORS = (PotstillError, ValueError, OSError)


@contextmanager
def exit_on(*errors: type[Exception], timed: bool = False) -> Iterator[None]:
    """Exit with one line on stderr on errors that a user can fix, with the time if it is a line of a log."""
    try:
        yield
    except typer.Exit:
        raise
    except errors as error:
        fail(str(error), timed=timed)


def fail(message: str, *, timed: bool = False) -> NoReturn:
    """Exit with a message and code 1."""
    say(message, timed=timed, fg=typer.colors.RED)
    raise typer.Exit(1)


def say(message: str, *, timed: bool = False, fg: str | None = None) -> None:
    """Print a line on stderr."""
    typer.secho(f"{f'{stamp()} ' if timed else ''}potstill: {message}", err=True, fg=fg)


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def author(stated: str | None) -> str:
    """Who asks for a change: as stated, or the user of the operating system."""
    if stated:
        return stated
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container without an entry for its user
        return f"user {os.getuid()}"


def make_directory(path: Path) -> None:
    """Create a folder for what a command writes."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        fail(f"cannot create the directory {path}: {error.strerror}; name another one with --out")


def default_group(name: str, default: str, about: str) -> typer.Typer:
    """A group of commands with a default: ``potstill evaluate DIR`` beside ``potstill evaluate plan DIR``.

    A folder with the name of a command must be stated as ``./plan``.

    Args:
        name: Name of the group.
        default: Name of the command that runs where none is named. It should have ``no_args_is_help=True``; its help is
            the group's, and should name the other commands.
        about: One line for the list of all commands.
    """
    kind = type("DefaultGroup", (_DefaultGroup,), {"default": default})
    return typer.Typer(name=name, cls=kind, help=about, rich_markup_mode="markdown")


class _DefaultGroup(TyperGroup):
    default: str

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert the default command where none is named."""
        named = args and args[0] in self.commands
        return super().parse_args(ctx, args if named else [self.default, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Show the usage of the default command without its name, and with the names of the others."""
        name, command, rest = super().resolve_command(ctx, args)
        if name != self.default or command is None:
            return name, command, rest
        others = [other for other in self.commands if other != self.default]
        command.context_class = _UnnamedContext
        command.options_metavar = f"[{'|'.join(others)}] [OPTIONS]"
        return None, command, rest


class _UnnamedContext(typer.Context):
    """Context of a command whose name is left out."""

    @property
    def command_path(self) -> str:
        """What is typed, without a trailing blank."""
        return super().command_path.rstrip()
