"""Replies, as ASGI messages, and the few things that are read of a request's headers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import msgspec

from potstill.errors import PotstillError

#: A message quotes names that the caller chose; longer ones are cut.
MAX_MESSAGE = 500

RETRY: Headers = ((b"retry-after", b"1"),)
CLOSE: Headers = ((b"connection", b"close"),)


Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
#: Names in small letters, and values.
Headers = Sequence[tuple[bytes, bytes]]
JSON, OCTETS, HTML = b"application/json", b"application/octet-stream", b"text/html; charset=utf-8"
_encode = msgspec.json.Encoder().encode


class Refusal(PotstillError):
    """A request is answered with an error.

    Attributes:
        status: of the reply.
        reason: what the refusal is counted as; one of a few words.
        message: one sentence for the caller; never a context.
        headers: of the reply, besides the usual ones.
    """

    def __init__(self, status: int, reason: str, message: str, headers: Headers = ()) -> None:
        super().__init__(message)
        self.status, self.reason, self.headers = status, reason, headers
        self.message = message if len(message) <= MAX_MESSAGE else message[:MAX_MESSAGE] + "…"

    @property
    def body(self) -> bytes:
        """The message as JSON."""
        # What a caller sends need not be valid Unicode, and what is sent to him must be.
        return msgspec.json.encode({"error": self.message.encode(errors="replace").decode()})


def undecodable(error: msgspec.DecodeError | UnicodeDecodeError, problem: str) -> Refusal:
    """A body that is no JSON, or not of the right form. The libraries' messages hold places, not values."""
    if isinstance(error, msgspec.ValidationError):
        return unfit(f"{error}; GET problem says what {problem!r} takes")
    return Refusal(400, "json", f"the body is not JSON: {error}")


def unfit(message: str) -> Refusal:
    """What does not fit the problem."""
    return Refusal(422, "unfit", message)


def too_large(message: str) -> Refusal:
    """A body or batch beyond its limit; what is left of it is not read."""
    return Refusal(413, "too large", message, CLOSE)


def overloaded(message: str) -> Refusal:
    """More than this worker takes at a time."""
    return Refusal(503, "overload", message, RETRY)


def unavailable(reason: str, message: str) -> Refusal:
    """Something is wrong on our side."""
    return Refusal(503, reason, message, RETRY)


class Reply:
    """What is sent back.

    Attributes:
        body: its bytes.
        status: its status.
        content_type: of the body.
        headers: besides content type and length.
    """

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(self, body: bytes, status: int = 200, content_type: bytes = JSON, headers: Headers = ()) -> None:
        self.body, self.status, self.content_type, self.headers = body, status, content_type, headers


def json(value: object, status: int = 200) -> Reply:
    """A value as JSON."""
    return Reply(_encode(value), status)


def refused(refusal: Refusal) -> Reply:
    """What a caller gets instead."""
    return Reply(refusal.body, refusal.status, headers=refusal.headers)


async def send_reply(send: Send, reply: Reply) -> None:
    """Send it."""
    body = reply.body
    headers = [(b"content-type", reply.content_type), *reply.headers]
    if reply.status != 304:  # which has no body, and must not say that it is empty
        headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def header(headers: Headers, name: bytes) -> bytes | None:
    """The value of a header; the first, if it stands several times."""
    for stated, value in headers:
        if stated == name:
            return value
    return None
