"""uvicorn for the service: requests without a task, replies in one write, and limits on heads, connections and time."""

from __future__ import annotations

import asyncio
import socket
import urllib.parse
from collections.abc import Coroutine
from typing import Any, ClassVar

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from potstill.service.http import CLOSE, JSON, RETRY, Headers, Refusal, Reply
from potstill.service.metrics import NullRecorder, Recorder
from potstill.service.process.connections import make_room

#: Seconds for the headers of a request, and for the first byte after connecting.
HEADER_SECONDS = 10.0
#: The most bytes of a line of a head, and of all of them; the most headers. Those of nginx, and Apache's number.
LINE_BYTES, HEAD_BYTES, HEADERS = 8 * 1024, 32 * 1024, 100
#: The most requests of a connection that wait for the reply to an earlier one.
PIPELINED = 100
#: Seconds in which the rest of a refused request is read and dropped: closing at once would drop the reply instead.
LINGER_SECONDS = 2.0
#: Milliseconds after which a peer that acknowledges no data is disconnected.
USER_TIMEOUT = 30_000
#: Seconds for requests in flight at shutdown.
DRAIN_SECONDS = 10


class Cycle(RequestResponseCycle):
    """A request and its reply; also a `Channel`, which spares the messages of ASGI."""

    def complete_body(self) -> bytes | None:
        """The body, if all of it is here."""
        return None if self.more_body else bytes(self.body)

    def reply(self, reply: Reply) -> bool:
        """Write a successful reply at once; False if it has to be sent by messages."""
        plain = reply.status < 300 and reply.status != 204 and self.keep_alive and self.scope["method"] != "HEAD"
        if not plain or self.flow.write_paused or self.disconnected:
            return False
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        about = b"content-type: %b\r\ncontent-length: %d\r\n" % (reply.content_type, len(reply.body))
        lines = (STATUS_LINE[reply.status], _default_lines(self.default_headers), about, _lines(reply.headers))
        self.transport.write(b"".join((*lines, b"\r\n", reply.body)))
        self.message_event.set()
        self.on_response()
        return True


def _lines(headers: Headers) -> bytes:
    return b"".join([b"%b: %b\r\n" % stated for stated in headers]) if headers else b""


_known_defaults: tuple[Headers, bytes] = (), b""


def _default_lines(headers: Headers) -> bytes:
    """The lines of the server's own headers. uvicorn makes a new list every second, for the date."""
    global _known_defaults
    if _known_defaults[0] is not headers:
        _known_defaults = headers, _lines(headers)
    return _known_defaults[1]


class Run:
    """Runs the coroutine of a complete POST request without a task: up to its first wait at once.

    It must not use what needs a task, such as `asyncio.timeout`. Nothing cancels it: it waits for the disk, or for a
    thread, and both end by themselves.
    """

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, None, None]) -> None:
        self._coroutine = coroutine
        self._step()

    def _step(self, _: object = None) -> None:
        try:
            awaited: Any = self._coroutine.send(None)
        except StopIteration:
            return
        if awaited is None:  # it yields to other callbacks
            asyncio.get_running_loop().call_soon(self._step)
        else:
            awaited._asyncio_future_blocking = False  # what a task does to show that it has seen the future
            awaited.add_done_callback(self._step)


class Connection(HttpToolsProtocol):
    """A connection with limits on the head of a request, before a token is looked at.

    A head that arrives in one piece shorter than a line may be, as nearly all do, is within every limit but that on the
    number of headers. Other heads are fed to the parser in such pieces, and measured.
    """

    header_seconds = HEADER_SECONDS
    ready: ClassVar[list[Coroutine[Any, None, None]]] = []  # of all connections: complete requests to run
    most_connections = 1000
    recorder: Recorder = NullRecorder()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.url = b""
        self._beginning = True
        self._split = False  # whether the present head is longer than a piece
        self._advanced = False  # whether a request began, or a body went on, in the present piece
        self._waste = 0  # bytes since then
        self._timer: asyncio.TimerHandle | None = None
        self._idle_since: float | None = None  # since the last reply; None while a request is in work
        self._refused = False
        self._begun: tuple[RequestResponseCycle, Any] | None = None  # a request whose head has just arrived

    @property
    def idle_since(self) -> float | None:
        """When it began to wait for a request, on the loop's clock; None if one is in work."""
        if self.transport.get_write_buffer_size():
            return None
        if self._timer is not None:
            return self._timer.when() - self.header_seconds
        return self._idle_since

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer of the first request."""
        super().connection_made(transport)
        _set_tcp_timeouts(transport.get_extra_info("socket"))
        self._wait(self.header_seconds)
        if len(self.connections) > self.most_connections and not make_room(self.connections, self):
            self.recorder.count_refusal("overload")
            transport.write(_reply_of(_full()))
            transport.close()  # at once: it holds a descriptor

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers."""
        self._stop_waiting()
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data; the timer runs while a head is incomplete, or a body goes on after its reply."""
        self._feed(data if len(data) <= LINE_BYTES else self._feed_heads(memoryview(data)))
        if self._timer is None and (self._beginning or self.cycle.response_complete):
            self._wait(self.header_seconds)
        if self._begun is not None:
            self._start(*self._begun)

    def on_message_begin(self) -> None:
        """A request starts."""
        self._beginning = self._advanced = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, as uvicorn's. Those after a body are dropped: the request has been let in without them."""
        if self._beginning:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """The head is complete; from here on the application limits the time. As uvicorn's, with a `Cycle`."""
        if self._split or len(self.headers) > HEADERS or self.url[:1] != b"/" or self.parser.should_upgrade():
            self._check_head()
        self._beginning = False
        self._stop_waiting()
        self._complete_scope()
        earlier, self.cycle = self.cycle, self._cycle()
        if earlier is None or earlier.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))
        if len(self.pipeline) > PIPELINED:
            raise _full()

    def _complete_scope(self) -> None:
        scope, url = self.scope, httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["http_version"] = self.parser.get_http_version()
        scope["path"] = self.root_path + (urllib.parse.unquote(path) if "%" in path else path)
        scope["raw_path"] = self.root_path.encode("ascii") + url.path
        scope["query_string"] = url.query or b""

    def _cycle(self) -> Cycle:
        return Cycle(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=self.scope["http_version"] != "1.0" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )

    def on_body(self, body: bytes) -> None:
        """A part of a body. As uvicorn's, which also looks for WebSockets, and copies a body in one part."""
        self._advanced = True
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.body = cycle.body + body if cycle.body else body  # type: ignore[assignment]
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        """The body is complete. As uvicorn's, which also looks for WebSockets."""
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.more_body = False
            cycle.message_event.set()

    def on_response_complete(self) -> None:
        """A reply is written: start the next request, or the time that an idle connection is kept."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._keep_alive(self.timeout_keep_alive)

    def _unset_keepalive_if_required(self) -> None:
        """Mark the connection as busy. The timer keeps running: resetting it at each request costs more."""
        self._idle_since = None

    def _keep_alive(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self._close_if_idle)

    def _close_if_idle(self) -> None:
        self.timeout_keep_alive_task = None  # the next reply sets it again
        if self._idle_since is None:
            return
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._keep_alive(left)
        else:
            self.timeout_keep_alive_handler()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start a request once the present data is parsed; one that had to wait for another, as uvicorn does."""
        if cycle is self.cycle and cycle.more_body:
            self._begun = cycle, app
        else:
            super()._start_asgi_task(cycle, app)

    def _start(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._begun = None
        if cycle.more_body or cycle.scope["method"] != "POST":
            super()._start_asgi_task(cycle, app)
        else:
            if not self.ready:
                self.loop.call_soon(self._run_ready)
            self.ready.append(cycle.run_asgi(app))

    def _run_ready(self) -> None:
        """Run the requests that arrived together: their decisions form one group for the log."""
        coroutines = self.ready.copy()
        self.ready.clear()
        for coroutine in coroutines:
            Run(coroutine)

    def _feed_heads(self, data: memoryview) -> memoryview:
        """Feed data in pieces while a head may be in them; returns the rest."""
        while len(data) > LINE_BYTES and (self._beginning or not self.cycle.more_body):
            self._feed(data[:LINE_BYTES])
            data = data[LINE_BYTES:]
        return data

    def _feed(self, data: bytes | memoryview) -> None:
        """Feed a piece to the parser, and count bytes that bring it no further: headers, and what surrounds a body."""
        if self._refused:
            return
        self._split, self._advanced = self._beginning or len(data) > LINE_BYTES, False
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.cycle.keep_alive = False  # the parser has given up on what follows
            self._refused = True
        except httptools.HttpParserError as error:
            self._refuse(error.__context__ if isinstance(error.__context__, Refusal) else _malformed())
        if self._advanced:
            self._waste = 0
            return
        self._waste += len(data)
        if self._waste > HEAD_BYTES:
            self._refuse(_too_long(self.url))

    def _check_head(self) -> None:
        """Refuse a head beyond a limit, or of a form that this service has no use for."""
        if len(self.url) > LINE_BYTES:
            raise _too_long(self.url)
        if len(self.headers) > HEADERS:
            raise Refusal(431, "head", f"at most {HEADERS} headers are allowed; send fewer")
        sizes = [len(name) + len(value) for name, value in self.headers]
        if max(sizes, default=0) > LINE_BYTES:
            raise Refusal(431, "head", f"a header may have at most {LINE_BYTES} bytes; send a shorter one")
        if sum(sizes) > HEAD_BYTES:
            raise _too_long(self.url)
        if self.parser.get_method() == b"CONNECT":
            raise Refusal(405, "unknown", "this is no proxy: CONNECT is not allowed", ((b"allow", b"GET, HEAD, POST"),))
        if self.parser.should_upgrade() and _has_body(self.headers):
            raise Refusal(400, "head", "this service speaks HTTP/1.1 only: send no header Upgrade with a body")

    def _refuse(self, refusal: Refusal) -> None:
        """Answer with an error and close. If earlier requests are still to be answered, close after their replies."""
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        self.recorder.count_refusal(refusal.reason)
        self._stop_waiting()
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(_reply_of(refusal))
            self.transport.write_eof()
            self._wait(LINGER_SECONDS)
        elif self.cycle.more_body:
            self.transport.close()  # its body will never be complete
        else:
            self.cycle.keep_alive = False

    def _wait(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._abort)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _abort(self) -> None:
        self.transport.abort()


def _full() -> Refusal:
    return Refusal(503, "overload", "too many connections, or requests on this one; retry in a second", RETRY)


def _malformed() -> Refusal:
    return Refusal(400, "head", "this is not a valid HTTP/1.1 request")


def _too_long(url: bytes) -> Refusal:
    if len(url) > LINE_BYTES:
        return Refusal(414, "head", f"a URL may have at most {LINE_BYTES} bytes; send a shorter one")
    return Refusal(431, "head", f"the headers of a request may have at most {HEAD_BYTES} bytes; send fewer")


def _has_body(headers: Headers) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in headers)


def _reply_of(refusal: Refusal) -> bytes:
    body = refusal.body
    stated = [(b"content-type", JSON), *refusal.headers, *CLOSE, (b"content-length", b"%d" % len(body))]
    return b"".join([STATUS_LINE[refusal.status], _lines(stated), b"\r\n", body])


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
