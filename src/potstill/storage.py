"""Storage of small files behind one contract: a folder or an object store.

Two guarantees make a registry safe without a server: writes are atomic, and of several processes that create the same
name exactly one succeeds.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Protocol

from potstill.errors import PotstillError
from potstill.files import create_atomically, make_folder, remove_stale, write_atomically


class AlreadyThere(PotstillError, FileExistsError):
    """The file to create already exists."""


class StorageUnavailable(PotstillError, OSError):
    """An object store is unreachable or rejected a request; the message says why."""


class Storage(Protocol):
    """Small files by name; names are relative and use ``/``. A missing file is a `FileNotFoundError`.

    Attributes:
        own_clock: Whether `times` are by a clock of the store's own: they are not those of a folder, which its machine
            sets and copying changes.
    """

    own_clock: ClassVar[bool]

    @property
    def url(self) -> str:
        """Path or URL, as users write it."""

    def read(self, name: str) -> bytes:
        """Bytes of a file."""

    def create(self, name: str, data: bytes) -> None:
        """Create a file atomically and durably; `AlreadyThere`, and no change, if it exists."""

    def replace(self, name: str, data: bytes) -> None:
        """Write a file atomically and durably, replacing an existing one."""

    def delete(self, name: str) -> None:
        """Remove a file; a missing file is no error."""

    def names(self, folder: str, after: str = "") -> list[str]:
        """Names of the files directly in a folder, without the folder, sorted; only those after `after`."""

    def times(self, folder: str) -> dict[str, int]:
        """When each file directly in a folder was last written, by the store's clock: microseconds since 1970, UTC."""

    def sweep(self, folder: str = "") -> None:
        """Remove what killed writers left directly in a folder; what may still be in use stays."""

    def within(self, folder: str) -> Storage:
        """Storage of a subfolder."""


def open_storage(url: str | Path) -> Storage:
    """A folder for a path, an object store for a URL such as ``s3://bucket/prefix``."""
    return ObjectStorage(str(url)) if "://" in str(url) else LocalStorage(Path(url))


def holds(storage: Storage, name: str, data: bytes) -> bool:
    """Whether a file exists with exactly these bytes."""
    try:
        return storage.read(name) == data
    except FileNotFoundError:
        return False


def child(url: str, name: str) -> str:
    """Path or URL of a file or subfolder."""
    return f"{url.rstrip('/')}/{name}"


class LocalStorage:
    """A folder."""

    own_clock: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def url(self) -> str:
        """The folder's path."""
        return str(self.folder)

    def read(self, name: str) -> bytes:
        """Bytes of a file."""
        return (self.folder / name).read_bytes()

    def create(self, name: str, data: bytes) -> None:
        """Create a file: hard-link a complete temporary file to the name, which fails if the name exists."""
        path = self._place(name)
        try:
            create_atomically(path, data)
        except FileExistsError:
            raise AlreadyThere(f"{path} exists already") from None

    def replace(self, name: str, data: bytes) -> None:
        """Write a file, replacing an existing one."""
        write_atomically(self._place(name), data)

    def delete(self, name: str) -> None:
        """Remove a file."""
        (self.folder / name).unlink(missing_ok=True)

    def names(self, folder: str, after: str = "") -> list[str]:
        """Names of the files directly in a folder, without unfinished ones, whose names begin with a dot."""
        return sorted(entry.name for entry in self._entries(folder) if entry.name > after)

    def times(self, folder: str) -> dict[str, int]:
        """When each file directly in a folder was last written."""
        found: dict[str, int] = {}
        for entry in self._entries(folder):
            with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                found[entry.name] = entry.stat().st_mtime_ns // 1000
        return found

    def sweep(self, folder: str = "") -> None:
        """Remove temporary files that killed writers left directly in a folder, a day after their last change."""
        remove_stale(self.folder / folder)

    def within(self, folder: str) -> LocalStorage:
        """Storage of a subfolder."""
        return LocalStorage(self.folder / folder)

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            found = list(os.scandir(self.folder / folder))
        except FileNotFoundError:
            return []
        return [entry for entry in found if not entry.name.startswith(".") and entry.is_file()]

    def _place(self, name: str) -> Path:
        path = self.folder / name
        make_folder(path.parent)
        return path


class ObjectStorage:
    """A prefix in an object store with conditional writes: S3 and compatible stores, GCS, Azure.

    Credentials and endpoints come from the environment (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, …). An endpoint
    without TLS needs ``AWS_ALLOW_HTTP=true``.
    """

    own_clock: ClassVar[bool] = True

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def read(self, name: str) -> bytes:
        """Bytes of a file."""
        import obstore

        with self._reaching(name):
            return bytes(obstore.get(self._store, name).bytes())

    def create(self, name: str, data: bytes) -> None:
        """Create a file with a conditional write."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        with self._reaching(name):
            try:
                obstore.put(self._store, name, data, mode="create")
            except AlreadyExistsError:
                raise AlreadyThere(f"{child(self.url, name)} exists already") from None

    def replace(self, name: str, data: bytes) -> None:
        """Write a file, replacing an existing one."""
        import obstore

        with self._reaching(name):
            obstore.put(self._store, name, data)

    def delete(self, name: str) -> None:
        """Remove a file."""
        import obstore

        with contextlib.suppress(FileNotFoundError), self._reaching(name):
            obstore.delete(self._store, name)

    def names(self, folder: str, after: str = "") -> list[str]:
        """Names of the files directly in a folder."""
        return sorted(self._entries(folder, f"{folder}/{after}" if after else None))

    def times(self, folder: str) -> dict[str, int]:
        """When each file directly in a folder was last written, by the store's clock."""
        return {name: int(entry["last_modified"].timestamp() * 1e6) for name, entry in self._entries(folder).items()}

    def sweep(self, folder: str = "") -> None:
        """Nothing to do: an object store has no temporary files."""

    def within(self, folder: str) -> ObjectStorage:
        """Storage of a subfolder."""
        return ObjectStorage(child(self.url, folder))

    def _entries(self, folder: str, offset: str | None = None) -> dict[str, Any]:
        """What the store says about the files directly in a folder, by name."""
        import obstore

        prefix = f"{folder}/" if folder else ""
        with self._reaching(folder):
            pages = obstore.list(self._store, folder or None, offset=offset)
            found = {str(entry["path"])[len(prefix) :]: entry for page in pages for entry in page}
        return {name: entry for name, entry in found.items() if "/" not in name}

    @contextlib.contextmanager
    def _reaching(self, name: str) -> Iterator[None]:
        """First line of an error of the object-store library, whose messages are long."""
        from obstore.exceptions import BaseError

        try:
            yield
        except BaseError as error:
            raise StorageUnavailable(f"{child(self.url, name)}: {_first_line(error)}") from error
        except FileNotFoundError as error:
            raise FileNotFoundError(f"{child(self.url, name)}: {_first_line(error)}") from None

    @property
    def _store(self) -> Any:
        if not hasattr(self, "_opened"):
            from obstore.store import from_url

            self._opened = from_url(self.url)
        return self._opened


def _first_line(error: Exception) -> str:
    return explained(str(error).partition("\n")[0])


def explained(message: str) -> str:
    """A message of the object-store library, with the way out where it does not say it."""
    if "builder error" in message:  # all that the library says about an endpoint without TLS
        message += "; if the endpoint is http:// and meant to be, set AWS_ALLOW_HTTP=true"
    return message
