"""The root of the command line: the Typer application and its global options."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from potstill._version import __version__
from potstill.cli import TASKS


class _ByTask(TyperGroup):
    """Lists commands by task, and shows flags without a type."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of the commands that were loaded, in the order of the help."""
        loaded = super().list_commands(ctx)
        return [name for commands in TASKS.values() for name in commands if name in loaded]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command, with the panel of its task."""
        command: Any = super().get_command(ctx, cmd_name)
        if command is not None:
            command.rich_help_panel = next((task for task, names in TASKS.items() if cmd_name in names), None)
            _hide_types_of_flags(command, ctx)
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The help of the application, whose flags have no types either."""
        _hide_types_of_flags(self, ctx)
        super().format_help(ctx, formatter)


def _hide_types_of_flags(command: Any, ctx: Any) -> None:
    for option in command.get_params(ctx):
        if getattr(option, "is_flag", False):
            option.metavar = ""
    for inner in getattr(command, "commands", {}).values():
        _hide_types_of_flags(inner, ctx)


app = typer.Typer(
    name="potstill",
    cls=_ByTask,
    help="Thompson sampling, distilled in batches into a small explicit policy.",
    no_args_is_help=True,
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
