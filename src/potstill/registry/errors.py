"""What can go wrong with versions; every message names the version or file, and the way out."""

from __future__ import annotations

from potstill.errors import PotstillError


class Conflict(PotstillError, RuntimeError):
    """Somebody else changed the registry first; nothing of this change is to be seen."""


class CorruptVersion(PotstillError, ValueError):
    """A file of the registry is not what was written; another version can be served instead."""


class InvalidPublication(PotstillError, ValueError):
    """A policy or an option does not fit the registry; nothing was changed."""


class NoState(PotstillError, LookupError):
    """The teacher's state of a version is not kept, or never was."""


class OtherProblem(PotstillError, ValueError):
    """The version that serves is for another problem than the workspace has now."""


class UnknownVersion(PotstillError, LookupError):
    """There is no such version, or none to go back to."""
