"""Groups of commands that are also commands: ``potstill evaluate DIR`` beside ``potstill evaluate plan DIR``."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup


def group(name: str, default: str, about: str) -> typer.Typer:
    """A group whose `default` command runs where none is named: with its arguments, or with ``--help``.

    A folder that is called as a command is stated as ``./plan``.

    Args:
        name: of the group, as it is typed.
        default: of one of its commands, which should say ``no_args_is_help=True``; its help is the group's, and should
            name the other commands.
        about: one line, for the list of all commands.
    """
    kind = type("Group", (_WithDefault,), {"default": default})
    return typer.Typer(name=name, cls=kind, help=about, rich_markup_mode="markdown")


class _Unnamed(typer.Context):
    """Of a command whose name need not be typed."""

    @property
    def command_path(self) -> str:
        """What is typed, without a blank for the name."""
        return super().command_path.rstrip()


class _WithDefault(TyperGroup):
    default: str

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command in where it was left out."""
        named = args and args[0] in self.commands
        return super().parse_args(ctx, args if named else [self.default, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Leave the default's name out of how its use is shown, as nobody has to type it, and show the other names."""
        name, command, rest = super().resolve_command(ctx, args)
        if name != self.default or command is None:
            return name, command, rest
        others = [other for other in self.commands if other != self.default]
        command.context_class = _Unnamed
        command.options_metavar = f"[{'|'.join(others)}] [OPTIONS]"
        return None, command, rest
