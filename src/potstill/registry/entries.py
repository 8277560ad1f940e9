"""Journal entries: each is one change of the registry, with the state after it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec

from potstill.registry.errors import CorruptVersion

_NAME = re.compile(r"(\d{10})\.json")

#: Way out of a damaged file.
WAY_OUT = "go back to a sound version with potstill rollback, or to a certain one with its --to"

State = Literal["serving", "served before", "staged", "refused"]
Event = Literal["published", "served", "pinned", "unpinned", "paused", "resumed", "mode"]


class File(msgspec.Struct, frozen=True):
    """A file of a version: name in the registry, SHA-256 and size."""

    name: str
    sha256: str
    bytes: int


class Files(msgspec.Struct, frozen=True, kw_only=True):
    """Files of a version."""

    policy: File
    teacher: File | None = None
    report: File


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """A pin of the serving version, or a pause of updates.

    Attributes:
        by: Who asked for it.
        reason: Why; empty if no reason was given.
        time: When, in microseconds since 1970, UTC.
    """

    by: str
    reason: str
    time: int

    @property
    def in_words(self) -> str:
        """Author, time and reason, such as ``by ann since 2026-11-16 03:50 UTC: clicks are wrong``."""
        since = datetime.fromtimestamp(self.time / 1e6, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return f"by {self.by or 'unknown'} since {since}{f': {self.reason}' if self.reason else ''}"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One change, and the state after it. The fields from `version` on describe one version.

    Attributes:
        number: Counts from 1, without gaps unless entries were lost.
        time: Microseconds since 1970, UTC.
        event: A version was published; one that had been published before was made to serve; the serving version
            was pinned or unpinned; updates were paused or resumed; or the mode of a service was changed (see `note`).
        serving: The version that serves from now on, if any.
        latest: The highest version number that was given out.
        back: The entry whose serving version a rollback returns to, if there is one.
        pinned: Who pinned the serving version; None if it is not pinned. New versions do not replace a pinned one.
        paused: Who paused updates; None if they are not paused.
        previous: SHA-256 of the bytes of the entry before it; empty if that one is unreadable, or there is none.
        lost: Number of entries before it that are known to be lost.
        writer: Random, so that a writer knows its own entry when a store's answer got lost.
        by: Who made the change; empty for an update.
        note: Reason that was given for the change.
        version: Version that was published or promoted; the serving one if the change is about none.
        parent: The version that it was distilled after, if any.
        problem: Hash of its problem.
        observations: Total number of observations it has learnt from.
        kl: Mean held-out divergence from its teacher in nats, if it was measured.
        reasons: Why it was not to serve; none if nothing was against it.
        files: Files of the version.
    """

    number: int
    time: int
    event: Event
    serving: int | None
    latest: int
    back: int | None = None
    pinned: Hold | None = None
    paused: Hold | None = None
    previous: str = ""
    lost: int = 0
    writer: str
    by: str = ""
    note: str = ""
    version: int
    parent: int | None = None
    problem: str
    observations: int = 0
    kl: float | None = None
    reasons: tuple[str, ...] = ()
    files: Files


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A version and its history. The other attributes are those of the `Entry` that published it.

    Attributes:
        state: ``refused`` if there were reasons against it, ``staged`` if there were none and it has not served yet.
    """

    version: int
    state: State
    time: int
    parent: int | None
    problem: str
    observations: int
    kl: float | None
    reasons: tuple[str, ...]
    note: str
    files: Files


class _Sealed(msgspec.Struct):
    sha256: str
    entry: msgspec.Raw


def entry_name(number: int) -> str:
    """Name of an entry's file; names sort as numbers do."""
    return f"{number:010}.json"


def entry_number(name: str) -> int | None:
    """Number in the name of an entry's file; None for another file."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def seal(entry: Entry) -> bytes:
    """An entry as the bytes of its file, with their checksum."""
    data = msgspec.json.encode(entry)
    return msgspec.json.encode(_Sealed(hashlib.sha256(data).hexdigest(), msgspec.Raw(data)))


def unseal(data: bytes, number: int, where: str) -> Entry:
    """Entry in the bytes of a file; `CorruptVersion` if they were altered."""
    try:
        sealed = msgspec.json.decode(data, type=_Sealed)
        actual = hashlib.sha256(sealed.entry).hexdigest()
        if actual != sealed.sha256:
            raise CorruptVersion(f"{where}: altered: its SHA-256 is {actual}, but it says {sealed.sha256}; {WAY_OUT}")
        entry = msgspec.json.decode(sealed.entry, type=Entry)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptVersion(f"{where}: truncated or altered: {error}; {WAY_OUT}") from error
    if entry.number != number:
        raise CorruptVersion(f"{where}: it is entry {entry.number} under another name; {WAY_OUT}")
    return entry


def versions_in(entries: Sequence[Entry], after: int = 0) -> list[Version]:
    """Versions after a number that these entries published; the entries must reach the last one."""
    served = {entry.serving for entry in entries}
    serving = entries[-1].serving if entries else None
    return [
        _version(entry, served, serving) for entry in entries if entry.event == "published" and entry.version > after
    ]


def _version(entry: Entry, served: set[int | None], serving: int | None) -> Version:
    return Version(
        version=entry.version,
        state=_state(entry, served, serving),
        time=entry.time,
        parent=entry.parent,
        problem=entry.problem,
        observations=entry.observations,
        kl=entry.kl,
        reasons=entry.reasons,
        note=entry.note,
        files=entry.files,
    )


def _state(entry: Entry, served: set[int | None], serving: int | None) -> State:
    if entry.version == serving:
        return "serving"
    if entry.version in served:
        return "served before"
    return "refused" if entry.reasons else "staged"
