"""Replies, as ASGI messages, and the few things that are read of a request's headers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import msgspec

from potstill.service.errors import Refusal

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
#: Names in small letters, and values.
Headers = Sequence[tuple[bytes, bytes]]

JSON, OCTETS, HTML = b"application/json", b"application/octet-stream", b"text/html; charset=utf-8"
_encode = msgspec.json.Encoder().encode


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
