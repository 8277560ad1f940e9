"""The shared store of a simulated world: an object store with conditional writes, outages and lost answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from simulation.scheduler import SECOND, Scheduler

from potstill.storage import AlreadyThere, StorageUnavailable

ROOT = "sim://store"


class Store:
    """Files by address.

    Attributes:
        files: Contents of the files.
        modified: True time of each file's last change.
        away: Hosts that cannot reach the store now.
        losing: Probability that the answer to a write gets lost.
        fault: Called with the kind of each call before its effect; may raise.
    """

    #: The store of the world that runs now.
    current: ClassVar[Store]

    def __init__(self, scheduler: Scheduler, on_write: Callable[[str, bytes], None]) -> None:
        self.scheduler, self._on_write = scheduler, on_write
        self.files: dict[str, bytes] = {}
        self.modified: dict[str, int] = {}
        self.away: set[str] = set()
        self.losing = 0.0
        self.fault: Callable[[str], object] | None = None

    def call(self, line: str) -> None:
        """One request: it takes a while, and fails during an outage."""
        if self.scheduler.task is None:
            return
        if self.fault is not None:
            self.fault(line.partition(" ")[0])
        self.scheduler.point(line)
        host = self.scheduler.process.host.name
        if host in self.away:
            self.scheduler.sleep(self.scheduler.random.randint(1, 5) * SECOND)
            raise StorageUnavailable(f"{line}: {host} cannot reach the store")

    def write(self, address: str, data: bytes) -> None:
        """Change a file; the answer may get lost."""
        self.files[address], self.modified[address] = data, self.scheduler.now
        self._on_write(address, data)
        if self.scheduler.task is not None:
            self.scheduler.answered()

    def lose_answer(self) -> bool:
        """Whether the answer to a write that was done gets lost."""
        return self.scheduler.task is not None and self.losing > 0 and self.scheduler.random.random() < self.losing


class SimulatedStorage:
    """A prefix of the store; takes the place of `potstill.storage.ObjectStorage`."""

    own_clock: ClassVar[bool] = True

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._store = Store.current

    def read(self, name: str) -> bytes:
        """Bytes of a file."""
        self._call("read", name)
        try:
            return self._store.files[self._address(name)]
        except KeyError:
            raise FileNotFoundError(self._address(name)) from None

    def create(self, name: str, data: bytes) -> None:
        """Create a file. After a lost answer the library tries again, and finds it, or gives up."""
        self._call("create", name)
        address = self._address(name)
        if address in self._store.files:
            raise AlreadyThere(f"{address} exists already")
        self._store.write(address, data)
        if self._store.lose_answer():
            self._store.scheduler.trace("lost")
            if self._store.scheduler.random.random() < 0.5:
                raise AlreadyThere(f"{address} exists already")
            raise StorageUnavailable(f"{address}: no answer")

    def replace(self, name: str, data: bytes) -> None:
        """Write a file."""
        self._call("replace", name)
        self._store.write(self._address(name), data)
        if self._store.lose_answer():
            raise StorageUnavailable(f"{self._address(name)}: no answer")

    def delete(self, name: str) -> None:
        """Remove a file."""
        self._call("delete", name)
        self._store.files.pop(self._address(name), None)

    def names(self, folder: str, after: str = "") -> list[str]:
        """Names of the files directly in a folder."""
        return sorted(name for name in self._entries(folder) if name > after)

    def times(self, folder: str) -> dict[str, int]:
        """When each file directly in a folder was last written, to the second."""
        entries = self._entries(folder)
        return {name: self._store.modified[address] // SECOND * SECOND for name, address in entries.items()}

    def sweep(self, folder: str = "") -> None:
        """Nothing to do."""

    def within(self, folder: str) -> SimulatedStorage:
        """Storage of a subfolder."""
        return SimulatedStorage(f"{self.url}/{folder}")

    def _entries(self, folder: str) -> dict[str, str]:
        """Addresses of the files directly in a folder, by name."""
        self._call("list", folder)
        start = f"{self._address(folder)}/" if folder else f"{self.url}/"
        found = {address.removeprefix(start): address for address in self._store.files if address.startswith(start)}
        return {name: address for name, address in found.items() if "/" not in name}

    def _call(self, kind: str, name: str) -> None:
        self._store.call(f"{kind} {self._address(name).removeprefix(ROOT)}")

    def _address(self, name: str) -> str:
        return f"{self.url}/{name}"
