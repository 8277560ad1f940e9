"""The journal: append-only entries, numbered without gaps."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from potstill.clock import now
from potstill.registry.blobs import states
from potstill.registry.entries import Entry, entry_name, entry_number, seal, unseal
from potstill.registry.errors import Conflict, CorruptVersion
from potstill.storage import AlreadyThere, Storage, child, holds

ENTRIES, HINT = "entries", "head.json"
#: Entries that are read concurrently: an object store has high latency and high throughput.
READERS = 16

Read = TypeVar("Read")


class _Hint(msgspec.Struct):
    number: int


class Journal:
    """Entries of a registry."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def last_number(self, hint: int | None = None) -> int:
        """Number of the last entry; 0 if there is none.

        Args:
            hint: A number that it may be, or be near to; what was noted at the last change if left out.
        """
        hint = self._hint() if hint is None else hint
        if hint > 0 and self.has(hint) and not self.has(hint + 1):
            return hint
        # Changes after the hint, or an unusable hint.
        numbers = self.numbers(hint - 1) or self.numbers()
        return numbers[-1] if numbers else 0

    def numbers(self, after: int = 0) -> list[int]:
        """Numbers of the entries after one, in order."""
        names = self._storage.names(ENTRIES, after=entry_name(after) if after > 0 else "")
        return [number for name in names if (number := entry_number(name)) is not None]

    def has(self, number: int) -> bool:
        """Whether there is such an entry; one small read."""
        try:
            self._storage.read(_place(number))
        except FileNotFoundError:
            return False
        return True

    def read(self, number: int) -> Entry:
        """An entry, verified."""
        return unseal(self._storage.read(_place(number)), number, child(self._storage.url, _place(number)))

    def sound(self, number: int) -> Entry | None:
        """An entry, or None if it cannot be read."""
        with contextlib.suppress(CorruptVersion):
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
        with contextlib.suppress(FileNotFoundError):
            while True:
                if entry := self.sound(number):
                    yield entry
                number += 1

    def append(self, after: int, **fields: Any) -> Entry:
        """Create the entry after a number; of concurrent writers one succeeds and the others get `Conflict`."""
        entry = Entry(**{"number": after + 1, "time": now(), "writer": uuid.uuid4().hex, **fields})
        data = seal(entry)
        try:
            self._storage.create(_place(entry.number), data)
        except AlreadyThere:
            # The store may have written the entry and lost its answer, so that a retry found it.
            if not holds(self._storage, _place(entry.number), data):
                raise conflict(after, self.last_number()) from None
        with contextlib.suppress(Exception):  # the change is durable; the hint may lag
            self._storage.replace(HINT, msgspec.json.encode(_Hint(entry.number)))
        return entry

    def _hint(self) -> int:
        try:
            return msgspec.json.decode(self._storage.read(HINT), type=_Hint).number
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
            return 0


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
