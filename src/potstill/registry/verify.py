"""Verification of a registry: its journal, and the files of every version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from potstill.registry.blobs import read_blob, states
from potstill.registry.chain import ACCEPT
from potstill.registry.entries import Version
from potstill.registry.errors import CorruptVersion

if TYPE_CHECKING:
    from potstill.registry.registry import Registry


def verify_registry(registry: Registry, given: int = -1) -> list[str]:
    """What is damaged or lost, in words; empty if all is well.

    Args:
        registry: The registry.
        given: The highest version that is known to have decided; its entry must be there, or a later one.
    """
    standing = registry.standing()
    latest = -1 if standing is None else standing.latest
    faults = [*registry.damage(), *registry.broken_links()]
    faults += [fault for version in registry.versions() for fault in _faults(registry, version)]
    if given > latest and not faults:
        faults.append(
            f"{registry.storage.url}: entries of the registry are lost: its latest version is {latest}, but version "
            f"{given} has decided; {ACCEPT}"
        )
    return faults


def _faults(registry: Registry, version: Version) -> list[str]:
    files = [version.files.policy, version.files.report]
    teacher = version.files.teacher
    if teacher is not None and teacher.name in states(registry.storage, version.version):  # else it was forgotten
        files.append(teacher)
    faults = []
    for file in files:
        try:
            read_blob(registry.storage, file)
        except CorruptVersion as error:
            faults.append(f"version {version.version}: {error}")
    return faults
