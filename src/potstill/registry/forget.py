"""Which teachers' states are no longer needed."""

from __future__ import annotations

from potstill.registry.blobs import states
from potstill.registry.entries import Entry
from potstill.registry.journal import Journal
from potstill.storage import Storage


def old_states(storage: Storage, journal: Journal, head: Entry, newest: int) -> dict[int, list[str]]:
    """The files of states of versions up to a number, save that of the serving one.

    Looks from the last entry back to where states were forgotten before, so that it costs little each time.
    """
    found: dict[int, list[str]] = {}
    for entry in journal.backwards(head.number):
        # A version that served until lately was spared until lately, however old it is.
        for version in {entry.version, entry.serving or 0}:
            if 0 < version <= newest and version != head.serving and version not in found:
                found[version] = states(storage, version)
        if entry.event == "published" and entry.files.teacher and found.get(entry.version) == []:
            break
    return {version: names for version, names in found.items() if names}
