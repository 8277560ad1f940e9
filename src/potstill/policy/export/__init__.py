"""Policies for places without Python: one module for each target, and one line here."""

from __future__ import annotations

import importlib
from pathlib import Path

from potstill.errors import UnsupportedSpace, shown
from potstill.policy.policy import Policy

#: Target: module with a ``write(policy, directory, name) -> list[Path]``.
TARGETS = {
    "c": "potstill.policy.export.c",
    "js": "potstill.policy.export.js",
    "onnx": "potstill.policy.export.onnx",
}


def export(policy: Policy, to: str, directory: str | Path, name: str = "policy") -> list[Path]:
    """Write a policy for another runtime, and return the files that were written.

    Args:
        policy: What to export.
        to: One of `TARGETS`.
        directory: Where to; it is made if need be.
        name: Base name of the files, and of what they define.
    """
    if to not in TARGETS:
        raise ValueError(f"cannot export to {to!r}; the targets are {', '.join(TARGETS)}")
    if policy.problem.actions.head().kernel != "softmax":
        raise UnsupportedSpace(
            f"exports know policies over a list of actions alone, got {shown(policy.problem.actions)}"
        )
    target = importlib.import_module(TARGETS[to])
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    written: list[Path] = target.write(policy, directory, name)
    return written
