"""The registry of policy versions: atomic publication, verified reads, rollback."""

from potstill.registry.entries import Entry, File, Files, Hold, Version
from potstill.registry.errors import Conflict, CorruptVersion, LostEntries, NoState, OtherProblem, UnknownVersion
from potstill.registry.registry import Registry
from potstill.registry.verify import verify_registry

__all__ = [
    "Conflict",
    "CorruptVersion",
    "Entry",
    "File",
    "Files",
    "Hold",
    "LostEntries",
    "NoState",
    "OtherProblem",
    "Registry",
    "UnknownVersion",
    "Version",
    "verify_registry",
]
