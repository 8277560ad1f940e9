"""Tokens: who may call the service, and what for.

A token is 256 random bits, so that its plain SHA-256 gives nothing away; only that is kept, in `tokens.json`.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
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
#: How long to wait for another change in an object store, and how often to look.
LOCK_SECONDS, LOCK_TRIES = 5.0, 50
_SCHEME = b"bearer "
_logger = logging.getLogger(__name__)


class InvalidToken(PotstillError, ValueError):
    """A token cannot be made or revoked as it was asked for, or the file of tokens does not make sense."""


class Refused(PotstillError):
    """A request has no token that allows it.

    Attributes:
        status: 401 if there is no token or an unknown one, 403 if it lacks the scope.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Token(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is kept of a token.

    Attributes:
        name: what people call it by.
        scopes: what it allows.
        sha256: of the token, in hex.
        created: microseconds since 1970, UTC.
    """

    name: str
    scopes: tuple[Scope, ...]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    created: int


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tokens: tuple[Token, ...] = ()


class TokenFile:
    """The tokens of a workspace, or of a file that several share.

    Args:
        storage: where the file is.
        name: of the file.
    """

    def __init__(self, storage: Storage, name: str = FILE) -> None:
        self._storage, self._name = storage, name

    @property
    def url(self) -> str:
        """Where it is, as a user would write it."""
        return child(self._storage.url, self._name)

    def read(self) -> tuple[Token, ...] | None:
        """The tokens; None if there is no file, and () if all were revoked."""
        try:
            return msgspec.json.decode(self._storage.read(self._name), type=_Kept).tokens
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise InvalidToken(f"{self.url}: {error}; mend it, or delete it and make new tokens") from error

    def create(self, name: str, scopes: Sequence[str]) -> str:
        """Make a token and return it: it cannot be shown again."""
        if not name or not name.isprintable():
            raise InvalidToken(f"a token's name must be printable and not empty, got {name!r}")
        token = PREFIX + secrets.token_urlsafe(BITS // 8)
        new = Token(name=name, scopes=_scopes(scopes), sha256=_digest(token.encode()), created=now())
        with self._changing() as before:
            if any(token.name == name for token in before):
                raise InvalidToken(f"{self.url} has a token {name!r} already; choose another name, or revoke it first")
            self._write((*before, new))
        return token

    def revoke(self, name: str) -> None:
        """Make a token useless; running services notice within seconds."""
        with self._changing() as before:
            left = tuple(token for token in before if token.name != name)
            if len(left) == len(before):
                known = ", ".join(token.name for token in before) or "none"
                raise InvalidToken(f"{self.url} has no token {name!r}; there are: {known}")
            self._write(left)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[tuple[Token, ...]]:
        """One change at a time."""
        with self._folder_lock() if isinstance(self._storage, LocalStorage) else self._file_lock():
            yield self.read() or ()

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
        """In an object store: a file that only one can create. Whoever dies meanwhile leaves it behind."""
        lock = f"{self._name}.lock"
        for _ in range(LOCK_TRIES):
            with contextlib.suppress(AlreadyThere):
                self._storage.create(lock, b"")
                break
            time.sleep(LOCK_SECONDS / LOCK_TRIES)
        else:
            where = child(self._storage.url, lock)
            raise InvalidToken(f"{self.url} is being changed by somebody else; if that is not so, delete {where}")
        try:
            yield
        finally:
            self._storage.delete(lock)

    def _write(self, tokens: tuple[Token, ...]) -> None:
        data = msgspec.json.format(msgspec.json.encode(_Kept(tokens)), indent=2)
        # Born with mode 0600: a file that gets it afterwards could be opened before. Only commands write tokens, so
        # that no other thread makes a file meanwhile.
        before = os.umask(0o077)
        try:
            self._storage.replace(self._name, data)
        finally:
            os.umask(before)


def token_file(workspace: Workspace, stated: str | Path | None = None) -> TokenFile:
    """The tokens of a workspace: a file of its own, or the one that is stated for several."""
    if stated is None:
        return TokenFile(workspace.storage)
    path = Path(stated)
    return TokenFile(LocalStorage(path.parent), path.name)


class Guard:
    """Says whether a request may pass. `check` is for the event loop; `reload` reads the file, so give it a thread.

    Args:
        file: of the tokens.
        required: refuse everything while there is no file, instead of letting everything pass.
    """

    def __init__(self, file: TokenFile, *, required: bool = False) -> None:
        self._file, self._fault = file, ""
        self._tokens = file.read()
        # A service that once had tokens does not open because somebody deletes the file.
        self._required = required or self._tokens is not None

    @property
    def open(self) -> bool:
        """Whether requests need no token."""
        return self._tokens is None and not self._required

    def reload(self) -> None:
        """Take up what has changed. While the file cannot be read, the tokens known last stay."""
        try:
            tokens = self._file.read()
        except (OSError, InvalidToken) as error:
            if self._fault != str(error):
                _logger.warning("tokens cannot be read, and stay as they were: %s", error)
            self._fault = str(error)
            return
        self._fault = ""
        self._required = self._required or tokens is not None
        self._tokens = tokens

    def check(self, authorization: bytes | None, scope: Scope) -> None:
        """Return if a request with this header may pass.

        Raises:
            Refused: it may not.
        """
        if self.open:
            return
        token = self._token(authorization)
        if scope not in token.scopes:
            raise Refused(403, f"the token {token.name!r} lacks the scope {scope!r}; use one that has it")

    def allows(self, authorization: bytes | None, scope: Scope) -> bool:
        """Whether a request with this header may pass."""
        try:
            self.check(authorization, scope)
        except Refused:
            return False
        return True

    def _token(self, authorization: bytes | None) -> Token:
        if authorization is None:
            raise Refused(401, "a token is needed: send the header 'Authorization: Bearer pst_…'")
        if authorization[: len(_SCHEME)].lower() != _SCHEME:
            raise Refused(401, "the Authorization header must be 'Bearer pst_…'")
        presented = _digest(authorization[len(_SCHEME) :].strip())
        # All are compared, whichever fits: the time taken says nothing about which one it was.
        fits = [token for token in self._tokens or () if hmac.compare_digest(token.sha256, presented)]
        if not fits:
            raise Refused(401, "this token is unknown or revoked; potstill token create makes a new one")
        return fits[0]


def _digest(token: bytes) -> str:
    return hashlib.sha256(token).hexdigest()


def _scopes(stated: Sequence[str]) -> tuple[Scope, ...]:
    unknown = [scope for scope in stated if scope not in SCOPES]
    if unknown or not stated:
        raise InvalidToken(f"scopes are {', '.join(SCOPES)}, got {', '.join(map(repr, unknown)) or 'none'}")
    return tuple(scope for scope in SCOPES if scope in stated)
