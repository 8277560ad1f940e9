"""The command line: one thin command per verb. What a command needs is imported when it runs."""

from potstill.cli import demo, policy, status  # each adds its commands to the app
from potstill.cli.app import app

__all__ = ["app", "demo", "main", "policy", "status"]


def main() -> None:
    """The `potstill` command."""
    app()
