"""Tokens of callers, and the scopes they allow.

A token is 256 random bits. `tokens.json` stores only its SHA-256; so much entropy needs no salt or slow hash. A file
beside it says that the workspace is closed to callers without a token, so that deleting `tokens.json` opens nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args

import msgspec

from potstill.errors import PotstillError
from potstill.events import now
from potstill.files import hold
from potstill.storage import AlreadyThere, LocalStorage, Storage, child
from potstill.workspace import Workspace

Scope = Literal["decide", "reward", "read", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
FILE = "tokens.json"
PREFIX = "pst_"
BITS = 256
#: Seconds to wait for a concurrent change in an object store, and number of attempts.
LOCK_SECONDS, LOCK_TRIES = 5.0, 50


class InvalidToken(PotstillError, ValueError):
    """A token cannot be created or revoked as asked, or the file of tokens is invalid."""


class TokensMissing(InvalidToken):
    """The file of tokens is gone from a workspace that was closed."""


class Token(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stored token.

    Attributes:
        name: Name for people.
        scopes: What it allows.
        sha256: SHA-256 of the token, in hex.
        created: Microseconds since 1970, UTC.
    """

    name: str
    scopes: tuple[Scope, ...]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    created: int


class _Contents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tokens: tuple[Token, ...] = ()


class TokenFile:
    """The tokens of a workspace, or of a file that several share.

    Args:
        storage: Storage that holds the file.
        name: Name of the file.
    """

    def __init__(self, storage: Storage, name: str = FILE) -> None:
        self._storage, self._name, self._mark = storage, name, f"{name.removesuffix('.json')}-closed.json"

    @property
    def url(self) -> str:
        """Address of the file, as a user would write it."""
        return child(self._storage.url, self._name)

    def read(self) -> tuple[Token, ...] | None:
        """The tokens; () if all were revoked, and None if there never were any, or `open` has opened the workspace.

        Raises:
            TokensMissing: There were tokens, and the file is gone.
            InvalidToken: The file is damaged.
        """
        try:
            return msgspec.json.decode(self._storage.read(self._name), type=_Contents).tokens
        except FileNotFoundError:
            if not self._is_closed():
                return None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidToken(f"{self.url}: {error}; fix it, or delete it and create new tokens") from error
        raise TokensMissing(
            f"{self.url} is missing, and callers need tokens here: restore it, create new tokens with potstill token "
            "create, or let all callers in with potstill token open"
        )

    def close(self) -> None:
        """Note that callers need tokens from now on, also if the tokens should be lost."""
        if not self._is_closed():
            with contextlib.suppress(AlreadyThere):
                self._storage.create(self._mark, msgspec.json.encode({"closed": now()}))

    def open(self) -> None:
        """Revoke all tokens, and let all callers in. Running services stay closed until they are restarted."""
        with self._locked():
            self._storage.delete(self._name)  # first: without its tokens the workspace is still closed
            self._storage.delete(self._mark)

    def create(self, name: str, scopes: Sequence[str]) -> str:
        """Create a token and return it: it cannot be shown again."""
        if not name or not name.isprintable():
            raise InvalidToken(f"a token's name must be printable and not empty, got {name!r}")
        token = PREFIX + secrets.token_urlsafe(BITS // 8)
        new = Token(name=name, scopes=_scopes(scopes), sha256=digest(token.encode()), created=now())
        with self._changing() as before:
            if any(token.name == name for token in before):
                raise InvalidToken(f"{self.url} has a token {name!r} already; choose another name, or revoke it first")
            self._write((*before, new))
        return token

    def revoke(self, name: str) -> None:
        """Revoke a token; running services refuse it within seconds."""
        with self._changing() as before:
            left = tuple(token for token in before if token.name != name)
            if len(left) == len(before):
                known = ", ".join(token.name for token in before) or "none"
                raise InvalidToken(f"{self.url} has no token {name!r}; its tokens: {known}")
            self._write(left)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[tuple[Token, ...]]:
        """One change at a time."""
        with self._locked():
            try:
                before = self.read() or ()
            except TokensMissing:
                before = ()
            yield before

    def _is_closed(self) -> bool:
        try:
            self._storage.read(self._mark)
        except FileNotFoundError:
            return False
        return True

    def _locked(self) -> contextlib.AbstractContextManager[None]:
        return self._folder_lock() if isinstance(self._storage, LocalStorage) else self._file_lock()

    @contextlib.contextmanager
    def _folder_lock(self) -> Iterator[None]:
        assert isinstance(self._storage, LocalStorage)
        lock = hold(self._storage.folder / f".{self._name}.lock", wait=True)
        try:
            yield
        finally:
            if lock is not None:
                os.close(lock)

    @contextlib.contextmanager
    def _file_lock(self) -> Iterator[None]:
        """In an object store: a file that only one process can create. A process that is killed leaves it behind."""
        lock = f"{self._name}.lock"
        for _ in range(LOCK_TRIES):
            with contextlib.suppress(AlreadyThere):
                self._storage.create(lock, b"")
                break
            time.sleep(LOCK_SECONDS / LOCK_TRIES)
        else:
            where = child(self._storage.url, lock)
            raise InvalidToken(f"{self.url} is locked by another process; if none is running, delete {where}")
        try:
            yield
        finally:
            self._storage.delete(lock)

    def _write(self, tokens: tuple[Token, ...]) -> None:
        self.close()
        self._storage.replace(self._name, msgspec.json.format(msgspec.json.encode(_Contents(tokens)), indent=2))


def token_file(workspace: Workspace, stated: str | Path | None = None) -> TokenFile:
    """The file of tokens of a workspace: its own, or the one stated for several."""
    if stated is None:
        return TokenFile(workspace.storage)
    path = Path(stated)
    return TokenFile(LocalStorage(path.parent), path.name)


def digest(token: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(token).hexdigest()


def _scopes(stated: Sequence[str]) -> tuple[Scope, ...]:
    unknown = [scope for scope in stated if scope not in SCOPES]
    if unknown or not stated:
        raise InvalidToken(f"scopes are {', '.join(SCOPES)}, got {', '.join(map(repr, unknown)) or 'none'}")
    return tuple(scope for scope in SCOPES if scope in stated)
