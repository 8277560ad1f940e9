"""The command line: one thin command per verb. What a command needs is imported when it runs."""

# Each adds its commands to the app.
from potstill.cli import (
    evaluate,
    evaluate_plan,
    events,
    experiment,
    lab,
    lab_studies,
    policy,
    serve,
    status,
    tune,
    update,
    workspace,
)
from potstill.cli.app import app

__all__ = [
    "app",
    "evaluate",
    "evaluate_plan",
    "events",
    "experiment",
    "lab",
    "lab_studies",
    "main",
    "policy",
    "serve",
    "status",
    "tune",
    "update",
    "workspace",
]


def main() -> None:
    """The `potstill` command."""
    app()
