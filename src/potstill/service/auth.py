"""Authorisation: which requests a problem's tokens let pass."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Iterable, Mapping

from potstill.errors import PotstillError
from potstill.service.http import RETRY, Headers, Refusal, header
from potstill.service.tokens import InvalidToken, Scope, Token, TokenFile, TokensMissing, digest

_SCHEME = b"bearer "
_logger = logging.getLogger(__name__)


class TokenRefused(PotstillError):
    """A request has no token that allows it.

    Attributes:
        status: 401 if there is no token or an unknown one, 403 if it lacks the scope, 503 if tokens cannot be checked.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Guard:
    """Checks the tokens of requests. `check` is for the event loop; `reload` reads a file, so run it in a thread.

    Args:
        file: The file of tokens.
        required: Whether to refuse every request while there are no tokens, instead of letting all pass.

    Attributes:
        open: Whether requests need no token.
    """

    def __init__(self, file: TokenFile, *, required: bool = False) -> None:
        self._file, self._required = file, required
        self._tokens: tuple[Token, ...] | None = None  # None: they could not be read so far
        self._fault, self._marked = "", False
        self.open = False
        self.reload()

    def reload(self) -> None:
        """Read the file again. While it cannot be read, the last known tokens stay valid."""
        try:
            found = self._file.read()
        except TokensMissing as error:
            self._report(f"every request is refused: {error}")
            found = ()
        except (OSError, InvalidToken) as error:
            what = "every request is refused" if self._tokens is None else "the last known tokens stay valid"
            self._report(f"cannot read tokens, so that {what}: {error}")
            return
        else:
            self._fault = ""
        if found is not None and not self._marked:
            self._mark()
        # A service that once had tokens must not become open because files are deleted.
        self._required = self._required or found is not None
        self._tokens, self.open = found or (), not self._required

    def check(self, authorization: bytes | None, scope: Scope) -> None:
        """Return if a request with this header may pass; `TokenRefused` otherwise."""
        if self.open:
            return
        if self._tokens is None:
            raise TokenRefused(503, "tokens cannot be checked now; the log of the service says why")
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

    def _mark(self) -> None:
        """Note on disk that callers need tokens; tokens of earlier versions of Potstill have no such note."""
        self._marked = True
        try:
            self._file.close()
        except OSError as error:
            _logger.warning("cannot note that callers need tokens, which keeps it so if tokens are lost: %s", error)

    def _report(self, fault: str) -> None:
        """Log a fault once for as long as it stays the same."""
        if fault != self._fault:
            _logger.error("%s", fault)
        self._fault = fault

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
        headers = {401: ((b"www-authenticate", b"Bearer"),), 503: RETRY}.get(error.status, ())
        raise Refusal(error.status, "token", str(error), headers) from error


def allowed(guards: Guards, problem: str, headers: Headers, scope: Scope) -> bool:
    """Whether a request to a problem may pass."""
    guard = guards.get(problem)
    return guard is None or guard.allows(header(headers, b"authorization"), scope)


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
