"""Replies and refusals as ASGI messages, and access to request headers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import parse_qsl

import msgspec

from potstill.errors import PotstillError
from potstill.events import TIME_PATTERN

#: Messages quote what the caller sent; longer ones are truncated.
MAX_MESSAGE = 500

#: The most fields of a query string.
MAX_FIELDS = 100
Q = TypeVar("Q")

RETRY: Headers = ((b"retry-after", b"1"),)
CLOSE: Headers = ((b"connection", b"close"),)


Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
#: Names in lower case, and values.
Headers = Sequence[tuple[bytes, bytes]]
JSON, OCTETS, HTML = b"application/json", b"application/octet-stream", b"text/html; charset=utf-8"
_encode = msgspec.json.Encoder().encode


class Refusal(PotstillError):
    """A request is answered with an error.

    Attributes:
        status: Status of the reply.
        reason: Label under which the refusal is counted; one of a fixed few.
        message: One sentence for the caller; never a context.
        headers: Further headers of the reply.
    """

    def __init__(self, status: int, reason: str, message: str, headers: Headers = ()) -> None:
        super().__init__(message)
        self.status, self.reason, self.headers = status, reason, headers
        self.message = message if len(message) <= MAX_MESSAGE else message[:MAX_MESSAGE] + "…"

    @property
    def body(self) -> bytes:
        """The message as JSON."""
        # The message may quote invalid Unicode, and a reply must be valid.
        return msgspec.json.encode({"error": self.message.encode(errors="replace").decode()})


def read_query(kind: type[Q], query: bytes) -> Q:
    """The fields of a query string; `Refusal` if they do not fit. Of a field stated twice, the last value counts.

    Args:
        kind: A Struct of texts, numbers and booleans that forbids unknown fields.
        query: What an address says after ``?``.
    """
    try:
        stated = dict(parse_qsl(query.decode("latin-1"), max_num_fields=MAX_FIELDS))
        return msgspec.convert(stated, kind, strict=False)
    except ValueError as error:  # a ValidationError is one
        raise Refusal(422, "unfit", f"the query of the address: {error}") from error


def undecodable(error: msgspec.DecodeError | UnicodeDecodeError, problem: str) -> Refusal:
    """The body is not JSON, or not of the right type. Messages of the decoder hold places, not values."""
    if isinstance(error, msgspec.ValidationError):
        told = str(error).replace(f"matching regex {TIME_PATTERN!r}", "of RFC 3339, such as 2026-01-31T12:00:00Z")
        return unfit(f"{told}; GET problem says what {problem!r} takes")
    return Refusal(400, "json", f"the body is not JSON: {error}")


def unfit(message: str) -> Refusal:
    """The request does not fit the problem or the mode."""
    return Refusal(422, "unfit", message)


def too_large(message: str) -> Refusal:
    """The body or batch exceeds its limit; the rest of it is not read."""
    return Refusal(413, "too large", message, CLOSE)


def overloaded(message: str) -> Refusal:
    """The worker has too many requests in flight."""
    return Refusal(503, "overload", message, RETRY)


def unavailable(reason: str, message: str) -> Refusal:
    """The service cannot answer now."""
    return Refusal(503, reason, message, RETRY)


class Reply:
    """A reply.

    Attributes:
        body: Its bytes.
        status: Its status.
        content_type: Media type of the body.
        headers: Further headers, besides content type and length.
    """

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(self, body: bytes, status: int = 200, content_type: bytes = JSON, headers: Headers = ()) -> None:
        self.body, self.status, self.content_type, self.headers = body, status, content_type, headers


def json(value: object, status: int = 200) -> Reply:
    """A reply with a value as JSON."""
    return Reply(_encode(value), status)


def refused(refusal: Refusal) -> Reply:
    """A refusal as a reply."""
    return Reply(refusal.body, refusal.status, headers=refusal.headers)


class Channel(Protocol):
    """A server's request that can be read and answered without messages; see `channel`."""

    def complete_body(self) -> bytes | None:
        """The body, if all of it is here."""

    def reply(self, reply: Reply) -> bool:
        """Write a successful reply at once; False if it has to be sent by messages."""


def channel(end: Receive | Send) -> Channel | None:
    """The channel behind one of the two callables of ASGI; None for other servers, and behind middleware."""
    found = getattr(end, "__self__", None)
    return found if hasattr(found, "complete_body") else None


def reply_at_once(send: Send, reply: Reply) -> bool:
    """Send a reply without messages; False if that is not possible, and `send_reply` is."""
    direct = channel(send)
    return direct is not None and direct.reply(reply)


async def send_reply(send: Send, reply: Reply) -> None:
    """Send a reply as two ASGI messages."""
    headers = [*reply.headers]
    if reply.status != 204:
        headers.insert(0, (b"content-type", reply.content_type))
    if reply.status not in (204, 304):  # they have no body, and must not state a length
        headers.append((b"content-length", b"%d" % len(reply.body)))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})


def header(headers: Headers, name: bytes) -> bytes | None:
    """The first value of a header; None if it is absent."""
    for stated, value in headers:
        if stated == name:
            return value
    return None
