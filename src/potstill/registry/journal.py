"""The journal: append-only entries, numbered without gaps, each with the hash of the one before it."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from potstill.clock import now
from potstill.registry.blobs import states
from potstill.registry.chain import Head, broken_links, lost, mark_name, read_head, record, replaced, sha256
from potstill.registry.entries import Entry, entry_name, entry_number, seal, unseal
from potstill.registry.errors import Conflict, CorruptVersion, LostEntries
from potstill.storage import AlreadyThere, Storage, child, holds

ENTRIES = "entries"
#: Entries that are read concurrently: an object store has high latency and high throughput.
READERS = 16

Read = TypeVar("Read")


class Journal:
    """Entries of a registry."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def last_number(self, hint: int | None = None) -> int:
        """Number of the last entry; 0 if there is none.

        Args:
            hint: A number that it may be, or be near to; what was recorded at the last change if left out.

        Raises:
            LostEntries: The journal ends before the recorded entry, or has another in its place.
        """
        recorded = read_head(self._storage) if hint is None else Head(hint)
        number, data = recorded.number, self._bytes(recorded.number)
        if data is not None:
            self._check_recorded(recorded, data)
            if not self.has(number + 1):
                return number
        # Changes after the record, or no usable record.
        numbers = self.numbers(number - 1) or self.numbers()
        last = numbers[-1] if numbers else 0
        if hint is None and last < number:
            raise lost(self._storage.url, last, recorded)
        if hint is None and last > number:
            self.record(last)
        return last

    def record(self, number: int) -> None:
        """Record an entry that its writer has not recorded: it was killed, or the store's answer got lost."""
        data, entry = self._bytes(number), self.sound(number)
        if data is not None and entry is not None and read_head(self._storage).number < number:
            record(self._storage, entry, data)

    def loss(self) -> str | None:
        """Why entries are missing or replaced at the end; None if none are."""
        try:
            self.last_number()
        except LostEntries as error:
            return str(error)
        return None

    def check_version(self, version: int) -> None:
        """`LostEntries` if a version that is not in the journal was published."""
        mark = read_head(self._storage, mark_name(version))
        if mark.number and mark.number > (last := self.last_number()):  # the mark was written after its entry
            raise lost(self._storage.url, last, mark)

    def broken_links(self) -> list[str]:
        """Where the chain of hashes is broken, in words."""
        read = read_all(lambda number: (number, self.sound(number), self._bytes(number) or b""), self.numbers())
        return broken_links(self._storage.url, read)

    def restore(self) -> list[int]:
        """Create lost entries again from the marks of the versions that they published; returns their numbers."""
        restored: list[int] = []
        while mark := self._next_mark():
            with contextlib.suppress(AlreadyThere):
                self._storage.create(_place(mark.number), mark.entry.encode())
            restored.append(mark.number)
        return restored

    def _next_mark(self) -> Head | None:
        """The mark of the version that was published right after the last entry; None if there is none."""
        last = max(self.numbers(), default=0)
        state = self.sound(last)
        if last and state is None:
            return None
        for version in [state.latest + 1] if state else [0, 1]:
            mark = read_head(self._storage, mark_name(version))
            if mark.number == last + 1 and sha256(mark.entry.encode()) == mark.sha256:
                entry = unseal(mark.entry.encode(), mark.number, mark_name(version))
                return mark if entry.previous == self._hash(last) else None
        return None

    def confirm(self, known: Entry) -> bool:
        """As `Registry.confirm`."""
        try:
            found: Entry | None = self.read(known.number)
        except FileNotFoundError:
            found = None
        except CorruptVersion:
            return False  # damaged, not replaced: named when it is read
        if found == known:
            return False
        if any(entry.lost for entry in self.onwards(known.number)):
            return True
        if found is not None:
            raise replaced(self._storage.url, known.number)
        raise lost(self._storage.url, max(self.numbers(), default=0), Head(known.number))

    def numbers(self, after: int = 0) -> list[int]:
        """Numbers of the entries after one, in order."""
        names = self._storage.names(ENTRIES, after=entry_name(after) if after > 0 else "")
        return [number for name in names if (number := entry_number(name)) is not None]

    def has(self, number: int) -> bool:
        """Whether there is such an entry; one small read."""
        return self._bytes(number) is not None

    def read(self, number: int) -> Entry:
        """An entry, verified."""
        return unseal(self._storage.read(_place(number)), number, child(self._storage.url, _place(number)))

    def sound(self, number: int) -> Entry | None:
        """An entry, or None if it is missing or cannot be read."""
        with contextlib.suppress(CorruptVersion, FileNotFoundError):
            return self.read(number)
        return None

    def fault(self, number: int) -> str | None:
        """Why an entry cannot be read; None if it can."""
        try:
            self.read(number)
        except CorruptVersion as error:
            return str(error)
        return None

    def standing(self) -> tuple[int, Entry | None]:
        """Number of the last entry, and the last readable entry."""
        number = self.last_number()
        return number, next(self.backwards(number), None)

    def backwards(self, number: int) -> Iterator[Entry]:
        """Readable entries from a number back to the first."""
        return (entry for earlier in range(number, 0, -1) if (entry := self.sound(earlier)))

    def onwards(self, number: int) -> Iterator[Entry]:
        """Readable entries from a number to the last."""
        while self.has(number) or self.numbers(number):  # where entries are lost, there are others behind the gap
            if entry := self.sound(number):
                yield entry
            number += 1

    def append(self, after: int, **fields: Any) -> Entry:
        """Create the entry after a number; of concurrent writers one succeeds and the others get `Conflict`."""
        given: dict[str, Any] = {"number": after + 1, "time": now(), "writer": uuid.uuid4().hex}
        entry = Entry(**(given | {"previous": self._hash(after)} | fields))
        data = seal(entry)
        try:
            self._storage.create(_place(entry.number), data)
        except AlreadyThere:
            # The store may have written the entry and lost its answer, so that a retry found it.
            if not holds(self._storage, _place(entry.number), data):
                raise conflict(after, self.last_number()) from None
        record(self._storage, entry, data)
        return entry

    def _bytes(self, number: int) -> bytes | None:
        """Bytes of an entry's file; None if there is none."""
        try:
            return self._storage.read(_place(number)) if number > 0 else None
        except FileNotFoundError:
            return None

    def _hash(self, number: int) -> str:
        """Hash of a readable entry; empty for another, so that the chain holds when it is restored."""
        return sha256(self._bytes(number) or b"") if self.sound(number) else ""

    def _check_recorded(self, recorded: Head, data: bytes) -> None:
        """`LostEntries` if an intact entry is not the recorded one; a damaged one is named when it is read."""
        if recorded.sha256 and sha256(data) != recorded.sha256 and self.sound(recorded.number):
            raise replaced(self._storage.url, recorded.number)


def read_all(function: Callable[[int], Read], numbers: Iterable[int]) -> list[Read]:
    """Apply a reader of the journal to many numbers concurrently."""
    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(function, numbers))


def conflict(expected: int, found: int) -> Conflict:
    """Error for a writer that was too late."""
    return Conflict(
        f"the registry was changed by somebody else: its last entry is {found}, and this change was to follow "
        f"{expected}; look at potstill versions, and try again"
    )


def _place(number: int) -> str:
    return f"{ENTRIES}/{entry_name(number)}"


def old_states(storage: Storage, journal: Journal, head: Entry, newest: int) -> dict[int, list[str]]:
    """State files of versions up to a number, except that of the serving one.

    Looks from the last entry back to where states were forgotten before, so that it costs little each time.
    """
    found: dict[int, list[str]] = {}
    for entry in journal.backwards(head.number):
        # A version that served until recently kept its state until recently, however old it is.
        for version in {entry.version, entry.serving or 0}:
            if 0 < version <= newest and version != head.serving and version not in found:
                found[version] = states(storage, version)
        if entry.event == "published" and entry.files.teacher and found.get(entry.version) == []:
            break
    return {version: names for version, names in found.items() if names}
