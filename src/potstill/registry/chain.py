"""Evidence of lost or replaced entries of the journal: the recorded head, marks of versions, a chain of hashes.

The mark of a version is a copy of the entry that published it, so that a lost one can be restored. An entry is created
first, then its version's mark and the head record. So both may lag behind the journal after a crash, and are never
ahead of it, unless entries were deleted or an older backup was restored.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from potstill.registry.entries import Entry
from potstill.registry.errors import LostEntries
from potstill.storage import Storage

HEAD = "head.json"
#: Way out of lost entries.
ACCEPT = (
    "restore the missing entries from a backup, or run potstill verify DIR --repair, which restores those that "
    "published a version from its files and records the loss of others; no number is given out twice"
)


class Head(msgspec.Struct, frozen=True, omit_defaults=True):
    """Record of the last entry, or of the entry that published a version.

    Attributes:
        number: Its number.
        sha256: Hash of its bytes; empty in records of earlier versions of Potstill.
        latest: The highest version number that was given out.
        entry: The bytes of the entry; only of one that published a version.
    """

    number: int
    sha256: str = ""
    latest: int = 0
    entry: str = ""


def sha256(data: bytes) -> str:
    """Hash of the bytes of an entry's file."""
    return hashlib.sha256(data).hexdigest()


def mark_name(version: int) -> str:
    """Name of the mark of a published version."""
    return f"versions/{version}/entry.json"


def read_head(storage: Storage, name: str = HEAD) -> Head:
    """The recorded head, or the mark of a version; zeros if it is missing or unusable."""
    try:
        return msgspec.json.decode(storage.read(name), type=Head)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return Head(0)


def record(storage: Storage, entry: Entry, data: bytes) -> None:
    """Record a new entry as the head, and its version as published. The change is durable; the record may lag."""
    head = Head(entry.number, sha256(data), entry.latest)
    records = {HEAD: head}
    if entry.event == "published":
        records = {mark_name(entry.version): msgspec.structs.replace(head, entry=data.decode()), HEAD: head}
    for name, record in records.items():
        with contextlib.suppress(Exception):
            storage.replace(name, msgspec.json.encode(record))


def lost(url: str, last: int, recorded: Head) -> LostEntries:
    """Error for a journal that ends before a recorded entry."""
    return LostEntries(
        f"{url}: entries of the registry are lost: the last one is {last}, but entry {recorded.number} was written; "
        f"{ACCEPT}"
    )


def replaced(url: str, number: int) -> LostEntries:
    """Error for an entry that is not the one that was recorded."""
    return LostEntries(
        f"{url}: entry {number} of the registry is not the one that was written first: entries were lost, and others "
        f"were written in their place; {ACCEPT}"
    )


def broken_links(url: str, entries: Sequence[tuple[int, Entry | None, bytes]]) -> list[str]:
    """Where the chain of hashes is broken, in words; only after the last loss that was accepted.

    Args:
        url: Location of the registry.
        entries: All entries in order: number, the entry if it is readable, and the bytes of its file.
    """
    accepted = max((number for number, entry, _ in entries if entry and entry.lost), default=0)
    faults = []
    for (before, earlier, data), (number, entry, _) in pairwise(entries):
        if number <= accepted:
            continue
        if before != number - 1:
            faults.append(f"{url}: entries {before + 1} to {number - 1} of the registry are missing; {ACCEPT}")
        elif entry and earlier and entry.previous and entry.previous != sha256(data):
            faults.append(str(replaced(url, before)))
    return faults
