"""The source of a teacher that is not part of Potstill: what a policy's lineage says about code."""

from __future__ import annotations

import hashlib
import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version

import msgspec


class Source(msgspec.Struct, frozen=True, omit_defaults=True):
    """The source of code.

    Attributes:
        sha256: SHA-256 of the file: of the model, or of the module that defines the class.
        distribution: Installed distribution that the module belongs to; None if there is none.
        version: Its version.
    """

    sha256: str
    distribution: str | None = None
    version: str | None = None

    @property
    def in_words(self) -> str:
        """The source in words, such as ``yourpackage 1.2, SHA-256 3f…``."""
        package = f"{self.distribution} {self.version}, " if self.distribution else ""
        return f"{package}SHA-256 {self.sha256}"


def source_of_text(text: bytes) -> Source:
    """The source of a file of a workspace."""
    return Source(hashlib.sha256(text).hexdigest())


@cache
def source_of_class(kind: type) -> Source | None:
    """The source of a class's module, read once a process; None if it has no file, as in an interactive session.

    It is read when the class is first used. A process that keeps running keeps the code that it has imported.
    """
    module = sys.modules.get(kind.__module__)
    spec = getattr(module, "__spec__", None)
    loader, origin = getattr(spec, "loader", None), getattr(spec, "origin", None)
    if loader is None or origin is None or not hasattr(loader, "get_data"):
        return None
    try:
        sha256 = hashlib.sha256(loader.get_data(origin)).hexdigest()
    except OSError:
        return None
    names = packages_distributions().get(kind.__module__.partition(".")[0], [])
    return Source(sha256, *_version(names[0])) if names else Source(sha256)


def _version(distribution: str) -> tuple[str, str] | tuple[None, None]:
    try:
        return distribution, version(distribution)
    except PackageNotFoundError:
        return None, None
