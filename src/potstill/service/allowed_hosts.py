"""A service without tokens accepts only Host headers of this machine, against DNS rebinding.

A web page can point a name of its own at 127.0.0.1, and so make a browser on this machine call the service as the
page's own origin. The Host header then has the page's name.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from typing import Any

from potstill.service.auth import Guard
from potstill.service.http import Receive, Refusal, Scope, Send, refused, send_reply

_HOST = re.compile(r"(\[(?P<six>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(:\d{0,5})?")
#: The most bytes of a name and a port, and the most hosts whose answer is kept.
HOST_BYTES, KNOWN = 255 + 6, 100
_known: dict[bytes, bool] = {}


class AllowedHosts:
    """ASGI middleware that refuses other Host headers while any problem is open.

    Args:
        app: The application.
        guards: Guards of the problems.
    """

    def __init__(self, app: Any, guards: Collection[Guard]) -> None:
        self._app, self._guards = app, guards

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] == "http" and not is_local(_host(scope)) and any(guard.open for guard in self._guards):
            await send_reply(send, refused(_REFUSAL))
            return
        await self._app(scope, receive, send)


def _host(scope: Scope) -> bytes:
    for name, value in scope["headers"]:  # nearly always the first
        if name == b"host":
            return bytes(value)
    return b""


def is_local(host: bytes) -> bool:
    """Whether a Host header names this machine: localhost, or a loopback address."""
    known = _known.get(host)
    return _look_up(host) if known is None else known


def _look_up(host: bytes) -> bool:
    """The same; hosts that are not valid are not kept."""
    found = _HOST.fullmatch(host.decode("latin-1").lower()) if len(host) <= HOST_BYTES else None
    if found is None:
        return False
    if len(_known) >= KNOWN:
        _known.clear()
    _known[host] = local = _names_loopback(found["six"] or found["name"])
    return local


def _names_loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


_REFUSAL = Refusal(
    403,
    "host",
    "without tokens this service answers to localhost and 127.0.0.1 only, and the Host header has another name; "
    "use one of these, or create a token with potstill token create",
)
