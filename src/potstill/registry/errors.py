"""Errors of the registry; every message names the version or file, and the way out."""

from __future__ import annotations

from potstill.errors import PotstillError


class Conflict(PotstillError, RuntimeError):
    """Another process changed the registry first; this change was not made."""


class CorruptVersion(PotstillError, ValueError):
    """A file of the registry is not what was written; another version can be served instead."""


class LostEntries(CorruptVersion):
    """Entries of the registry were deleted or replaced, or an older backup was restored."""


class InvalidPublication(PotstillError, ValueError):
    """A policy or an option does not fit the registry; nothing was changed."""


class NoState(PotstillError, LookupError):
    """There is no stored teacher state for a version."""


class OtherProblem(PotstillError, ValueError):
    """The serving version is for another problem than the workspace's."""


class UnknownVersion(PotstillError, LookupError):
    """There is no such version, or none to roll back to."""
