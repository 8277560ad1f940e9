"""The registry of policy versions: atomic publication, verified reads, rollback."""

from potstill.registry.entries import Entry, File, Files, Hold, Version
from potstill.registry.errors import Conflict, CorruptVersion, NoState, OtherProblem, UnknownVersion
from potstill.registry.registry import Registry

__all__ = [
    "Conflict",
    "CorruptVersion",
    "Entry",
    "File",
    "Files",
    "Hold",
    "NoState",
    "OtherProblem",
    "Registry",
    "UnknownVersion",
    "Version",
]
