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

#: Targets whose models know nothing of retired actions.
_WITHOUT_RETIRED = ("c", "onnx")


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
    retired = getattr(policy.problem.actions, "retired", ())
    if retired and to in _WITHOUT_RETIRED:
        raise UnsupportedSpace(
            f"a policy with retired actions ({', '.join(retired)}) cannot be exported to {to}, which would choose "
            "them; remove them with potstill actions remove and export the version of the next update, or export to js"
        )
    target = importlib.import_module(TARGETS[to])
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    written: list[Path] = target.write(policy, directory, name)
    return written
