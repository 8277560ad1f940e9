"""An open service answers to names of this machine only.

A page from anywhere can make a browser on this machine call it under a name of the page's own, which it has pointed at
127.0.0.1; to the browser that is the page's own origin. The Host header gives it away.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from functools import lru_cache
from typing import Any

from potstill.service.http import Receive, Refusal, Scope, Send, refused, send_reply
from potstill.service.tokens import Guard

_HOST = re.compile(r"(\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[^:\[\]]+))(:\d*)?")


class KnownHosts:
    """An ASGI application that refuses requests for other machines, while any of its problems is open.

    Args:
        app: that answers the others.
        guards: of the problems.
    """

    def __init__(self, app: Any, guards: Collection[Guard]) -> None:
        self._app, self._guards = app, guards

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass on anything else."""
        if scope["type"] == "http" and not is_local(_host(scope)) and any(guard.open for guard in self._guards):
            await send_reply(send, refused(_REFUSAL))
            return
        await self._app(scope, receive, send)


def _host(scope: Scope) -> bytes:
    for name, value in scope["headers"]:  # nearly always the first
        if name == b"host":
            return bytes(value)
    return b""


@lru_cache(maxsize=100)
def is_local(host: bytes) -> bool:
    """Whether a Host header names this machine: localhost, or an address of the loopback."""
    found = _HOST.fullmatch(host.decode("latin-1").lower())
    name = found and (found["six"] or found["name"])
    if not name or name == "localhost":
        return bool(name)
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


_REFUSAL = Refusal(
    403,
    "host",
    "without tokens this service answers to localhost and 127.0.0.1 only, and the Host header says another name; "
    "call it by one of these, or make a token with potstill token create",
)
