"""Export of policies to runtimes without Python: one module and one line here per target."""

from __future__ import annotations

import importlib
from pathlib import Path

from potstill.errors import InvalidOption, UnsupportedSpace, shown
from potstill.policy.export.js import javascript_runtime
from potstill.policy.policy import Policy

__all__ = ["TARGETS", "export", "javascript_runtime"]

#: Target: module with a ``write(policy, directory, name) -> list[Path]``.
TARGETS = {
    "c": "potstill.policy.export.c",
    "js": "potstill.policy.export.js",
    "onnx": "potstill.policy.export.onnx",
}


def export(policy: Policy, to: str, directory: str | Path, name: str = "policy") -> list[Path]:
    """Export a policy to another runtime, and return the paths of the files.

    Args:
        policy: Policy to export.
        to: Name of a target in `TARGETS`.
        directory: Directory for the files; created if missing.
        name: Base name of the files and of the symbols they define.
    """
    if to not in TARGETS:
        raise InvalidOption(f"cannot export to {to!r}; the targets are {', '.join(TARGETS)}")
    if not policy.problem.actions.head().kernel:
        raise UnsupportedSpace(
            f"only policies over a list of actions or a number can be exported, got {shown(policy.problem.actions)}"
        )
    target = importlib.import_module(TARGETS[to])
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    written: list[Path] = target.write(policy, directory, name)
    return written
