"""Sweep: delete files of publications that lost a race or were killed before their entry.

A version's files are written before its entry. Once the entry exists no other publication can have that version: it
would have to follow an entry that has been followed already. So what the entry does not name is of no use, however new
it is. Files of versions without an entry stay, since somebody may be about to publish them.
"""

from __future__ import annotations

from collections.abc import Iterable

from potstill.registry.chain import mark_name
from potstill.registry.entries import Entry
from potstill.storage import Storage


def stray_files(storage: Storage, entries: Iterable[Entry]) -> list[str]:
    """Names of the files of published versions that their entries do not name; deletes nothing."""
    return [name for entry in entries if entry.event == "published" for name in _strays(storage, entry)]


def sweep_versions(storage: Storage, entries: Iterable[Entry]) -> list[str]:
    """Delete the files of published versions that their entries do not name; returns the names."""
    return [name for entry in entries if entry.event == "published" for name in _sweep(storage, entry)]


def _sweep(storage: Storage, entry: Entry) -> list[str]:
    strays = _strays(storage, entry)
    for name in strays:
        storage.delete(name)
    storage.sweep(_folder(entry))
    return strays


def _strays(storage: Storage, entry: Entry) -> list[str]:
    folder = _folder(entry)
    named = {file.name for file in (entry.files.policy, entry.files.teacher, entry.files.report) if file}
    named.add(mark_name(entry.version))
    return [name for other in storage.names(folder) if (name := f"{folder}/{other}") not in named]


def _folder(entry: Entry) -> str:
    return entry.files.policy.name.rpartition("/")[0]
