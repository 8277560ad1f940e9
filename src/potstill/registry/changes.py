"""Fields of the next entry: what a change sets, and what it keeps of the state before it."""

from __future__ import annotations

from typing import Any

from potstill.clock import now
from potstill.policy import Policy
from potstill.registry.entries import Entry, Files, Hold

#: Fields of an entry that describe its version and never change.
OF_A_VERSION = ("version", "parent", "problem", "observations", "kl", "reasons", "files")


def described(policy: Policy, reasons: tuple[str, ...], files: Files) -> dict[str, Any]:
    """A new version."""
    metadata = policy.metadata
    return {
        "version": policy.version,
        "parent": metadata.parent,
        "problem": metadata.problem_hash,
        "observations": metadata.lineage.observations,
        "kl": (metadata.fidelity or {}).get("kl_mean"),
        "reasons": reasons,
        "files": files,
    }


def same_version(published: Entry) -> dict[str, Any]:
    """A version that was published before."""
    return {field: getattr(published, field) for field in OF_A_VERSION}


def forward(state: Entry | None, version: int) -> dict[str, Any]:
    """Switch the serving version; a rollback returns to the present one."""
    return {"serving": version, "back": state.number if state and state.serving is not None else None}


def unmoved(state: Entry | None) -> dict[str, Any]:
    """Keep the serving version."""
    return {"serving": state.serving if state else None, "back": state.back if state else None}


def hold(reason: str, by: str) -> Hold:
    """A pin or a pause that begins now."""
    return Hold(by=by, reason=reason, time=now())


def holds(state: Entry | None) -> dict[str, Any]:
    """The pin and the pause, which every change keeps unless it is about them."""
    return {"pinned": state.pinned if state else None, "paused": state.paused if state else None}
