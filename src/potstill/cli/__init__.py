"""The command line. A module of commands is imported when one of its commands runs, which keeps the start quick.

`potstill.cli.app`, the application with all commands, is for tests and documentation.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

#: Module of each command.
COMMANDS = {
    "show": "policy",
    "decide": "policy",
    "explain": "policy",
    "export": "policy",
    "init": "workspace",
    "import": "import_logs",
    "versions": "versions",
    "rollback": "versions",
    "promote": "versions",
    "pin": "versions",
    "unpin": "versions",
    "pause": "versions",
    "resume": "versions",
    "events": "events",
    "update": "update",
    "reproduce": "update",
    "audit": "update",
    "backup": "backup",
    "restore": "backup",
    "forget": "backup",
    "warm-start": "update",
    "status": "status",
    "verify": "verify",
    "serve": "serve",
    "token": "serve",
    "experiment": "experiment",
    "evaluate": "evaluate",
    "tune": "tune",
    "design": "design",
    "lab": "lab",
    "demo": "lab",
}
#: Modules that add commands to a group of another one.
_MORE = {"evaluate": ("evaluate_plan",), "lab": ("lab_studies", "lab_bakeoff")}


def main() -> None:
    """The `potstill` command."""
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    load(COMMANDS[command]) if command in COMMANDS else load(*COMMANDS.values())
    _application()()


def load(*modules: str) -> None:
    """Import modules of commands, each of which adds its commands to the application."""
    for module in dict.fromkeys(modules):
        for name in (module, *_MORE.get(module, ())):
            importlib.import_module(f"{__name__}.{name}")


def _application() -> Any:
    return importlib.import_module(f"{__name__}.root").app


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    load(*COMMANDS.values())
    return _application()
