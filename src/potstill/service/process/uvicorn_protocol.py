"""uvicorn for the service: replies in one write, and a time limit on request headers."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from potstill.service.http import Message

#: Seconds for the headers of a request, and for the first byte after connecting.
HEADER_SECONDS = 10.0
#: Milliseconds after which a peer that acknowledges no data is disconnected.
USER_TIMEOUT = 30_000
#: Seconds for requests in flight at shutdown.
DRAIN_SECONDS = 10


class Cycle(RequestResponseCycle):
    """A request and its reply. A plain reply is written at once, in half of uvicorn's time."""

    _head: Message | None = None  # held back until the body follows

    async def send(self, message: Any) -> None:
        """Send a message of the application."""
        if self._head is None and self._is_plain(message):
            self._head = message
            return
        head, self._head = self._head, None
        if head is not None and self.keep_alive and not self.flow.write_paused and not self.disconnected:
            self._reply(head, message["body"])
            return
        if head is not None:
            await super().send(head)  # type: ignore[arg-type]
        await super().send(message)

    def _is_plain(self, message: Message) -> bool:
        """Whether it starts a successful reply of this service, which has one part and states its length last."""
        starts = message["type"] == "http.response.start" and message["status"] < 300
        return starts and message["headers"][-1][0] == b"content-length" and self.scope["method"] != "HEAD"

    def _reply(self, head: Message, body: bytes) -> None:
        headers = [b"%b: %b\r\n" % stated for stated in (*self.default_headers, *head["headers"])]
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        self.transport.write(b"".join([STATUS_LINE[head["status"]], *headers, b"\r\n", body]))
        self.message_event.set()
        self.on_response()


class Connection(HttpToolsProtocol):
    """A connection with a time limit on headers; uvicorn limits only the time between requests."""

    header_seconds = HEADER_SECONDS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._beginning = True
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer of the first request."""
        super().connection_made(transport)
        _set_tcp_timeouts(transport.get_extra_info("socket"))
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Start the timer while headers are incomplete, or a body goes on after its reply."""
        super().data_received(data)
        if self._timer is None and (self._beginning or self.cycle.response_complete):
            self._wait()

    def on_message_begin(self) -> None:
        """A request starts."""
        self._beginning = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The headers are complete; from here on the application limits the time."""
        self._beginning = False
        self._stop_waiting()
        super().on_headers_complete()
        self.cycle.__class__ = Cycle  # uvicorn hard-codes its own class; nothing of it has run yet

    def _wait(self) -> None:
        self._timer = self.loop.call_later(self.header_seconds, self._abort)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _abort(self) -> None:
        self.transport.abort()


def server_config(app: Any, **options: Any) -> uvicorn.Config:
    """The configuration of uvicorn; `options` are further ones of `uvicorn.Config`."""
    stated: dict[str, Any] = {
        "http": Connection,
        "ws": "none",
        "lifespan": "on",
        "access_log": False,
        "proxy_headers": False,
        "log_level": "warning",
        "server_header": False,
        "timeout_graceful_shutdown": DRAIN_SECONDS,
    }
    return uvicorn.Config(app, **{**stated, **options})


def _set_tcp_timeouts(sock: socket.socket) -> None:
    if hasattr(socket, "TCP_USER_TIMEOUT") and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
