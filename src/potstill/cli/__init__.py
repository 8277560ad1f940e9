"""The command line. A module of commands is imported when one of its commands runs, which keeps the start quick.

`potstill.cli.app`, the application with all commands, is for tests and documentation.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

#: Module of each command, by task, in the order of the help.
TASKS = {
    "Start here": {"init": "workspace", "serve": "serve", "update": "update", "status": "status", "demo": "lab"},
    "Look at a policy": {"show": "policy", "decide": "policy", "explain": "policy", "export": "policy"},
    "Change what serves": {
        "versions": "versions",
        "rollback": "versions",
        "promote": "versions",
        "pin": "versions",
        "unpin": "versions",
        "pause": "versions",
        "resume": "versions",
        "actions": "actions",
        "items": "items",
    },
    "Evaluate": {"evaluate": "evaluate", "experiment": "experiment", "tune": "tune", "lab": "lab"},
    "Bring data": {"import": "import_logs", "warm-start": "update", "design": "design"},
    "Operate": {
        "token": "serve",
        "events": "events",
        "verify": "verify",
        "audit": "update",
        "reproduce": "update",
        "backup": "backup",
        "restore": "backup",
        "forget": "backup",
    },
}
COMMANDS = {name: module for commands in TASKS.values() for name, module in commands.items()}
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
