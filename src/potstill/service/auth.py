"""Authorisation: which requests a problem's tokens let pass."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Iterable, Mapping

from potstill.errors import PotstillError
from potstill.service.http import Headers, Refusal, header
from potstill.service.tokens import InvalidToken, Scope, Token, TokenFile, digest

_SCHEME = b"bearer "
_logger = logging.getLogger(__name__)


class TokenRefused(PotstillError):
    """A request has no token that allows it.

    Attributes:
        status: 401 if there is no token or an unknown one, 403 if it lacks the scope.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Guard:
    """Checks the tokens of requests. `check` is for the event loop; `reload` reads a file, so run it in a thread.

    Args:
        file: The file of tokens.
        required: Whether to refuse every request while there is no file, instead of letting all pass.
    """

    def __init__(self, file: TokenFile, *, required: bool = False) -> None:
        self._file, self._fault = file, ""
        self._tokens = file.read()
        # A service that once had tokens must not become open because the file is deleted.
        self._required = required or self._tokens is not None

    @property
    def open(self) -> bool:
        """Whether requests need no token."""
        return self._tokens is None and not self._required

    def reload(self) -> None:
        """Read the file again. While it cannot be read, the last known tokens stay valid."""
        try:
            tokens = self._file.read()
        except (OSError, InvalidToken) as error:
            if self._fault != str(error):
                _logger.warning("cannot read tokens; keeping the last known ones: %s", error)
            self._fault = str(error)
            return
        self._fault = ""
        self._required = self._required or tokens is not None
        self._tokens = tokens

    def check(self, authorization: bytes | None, scope: Scope) -> None:
        """Return if a request with this header may pass; `TokenRefused` otherwise."""
        if self.open:
            return
        token = self._token(authorization)
        if scope not in token.scopes:
            raise TokenRefused(403, f"the token {token.name!r} lacks the scope {scope!r}; use one that has it")

    def allows(self, authorization: bytes | None, scope: Scope) -> bool:
        """Whether a request with this header may pass."""
        try:
            self.check(authorization, scope)
        except TokenRefused:
            return False
        return True

    def caller(self, authorization: bytes | None) -> str:
        """Name of the token of a request that may pass; empty for an open service."""
        return "" if self.open else self._token(authorization).name

    def _token(self, authorization: bytes | None) -> Token:
        if authorization is None:
            raise TokenRefused(401, "a token is needed: send the header 'Authorization: Bearer pst_…'")
        if authorization[: len(_SCHEME)].lower() != _SCHEME:
            raise TokenRefused(401, "the Authorization header must be 'Bearer pst_…'")
        presented = digest(authorization[len(_SCHEME) :].strip())
        # Every token is compared, so that timing does not tell which one matched.
        matches = [token for token in self._tokens or () if hmac.compare_digest(token.sha256, presented)]
        if not matches:
            raise TokenRefused(401, "this token is unknown or revoked; potstill token create makes a new one")
        return matches[0]


Guards = Mapping[str, Guard]


def check(guards: Guards, problem: str, headers: Headers, scope: Scope) -> None:
    """Return if a request to a problem may pass; `Refusal` otherwise. A problem without a guard is open."""
    guard = guards.get(problem)
    if guard is None:
        return
    try:
        guard.check(header(headers, b"authorization"), scope)
    except TokenRefused as error:
        challenge = ((b"www-authenticate", b"Bearer"),) if error.status == 401 else ()
        raise Refusal(error.status, "token", str(error), challenge) from error


def author(guards: Guards, problem: str, headers: Headers, stated: str) -> str:
    """Author of an administrator's request: the token's name, and the person whom the request names."""
    guard = guards.get(problem)
    name = "" if guard is None else guard.caller(header(headers, b"authorization"))
    if not name:
        return stated or "an open service"
    return f"{stated} (token {name})" if stated else name


def visible(guards: Guards, problems: Iterable[str], headers: Headers, scope: Scope) -> set[str]:
    """The problems that a request may see; `Refusal` if there is none."""
    found: set[str] = set()
    refusal: Refusal | None = None
    for problem in problems:
        try:
            check(guards, problem, headers, scope)
            found.add(problem)
        except Refusal as error:
            refusal = error
    if refusal is not None and not found:
        raise refusal
    return found
