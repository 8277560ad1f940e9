"""Who may ask: the guards of problems, as refusals of requests."""

from __future__ import annotations

from collections.abc import Iterable

from potstill.service.http import Headers, Refusal, header
from potstill.service.limits import Options
from potstill.service.tokens import Refused, Scope


def check(options: Options, problem: str, headers: Headers, scope: Scope) -> None:
    """Return if a request may pass.

    Raises:
        Refusal: it may not.
    """
    guard = options.guards.get(problem)
    if guard is None:
        return
    try:
        guard.check(header(headers, b"authorization"), scope)
    except Refused as error:
        ask = ((b"www-authenticate", b"Bearer"),) if error.status == 401 else ()
        raise Refusal(error.status, "token", str(error), ask) from error


def allowed(options: Options, problems: Iterable[str], headers: Headers, scope: Scope) -> set[str]:
    """Of these problems, those that a request may see; it is refused if there is none."""
    seen: set[str] = set()
    refusal: Refusal | None = None
    for problem in problems:
        try:
            check(options, problem, headers, scope)
            seen.add(problem)
        except Refusal as error:
            refusal = error
    if refusal is not None and not seen:
        raise refusal
    return seen
