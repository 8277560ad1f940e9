"""Why a request is refused: a status, one sentence, and a word for the metrics."""

from __future__ import annotations

import msgspec

#: A message quotes names that the caller chose; longer ones are cut.
MAX_MESSAGE = 500
Headers = tuple[tuple[bytes, bytes], ...]

RETRY: Headers = ((b"retry-after", b"1"),)
CLOSE: Headers = ((b"connection", b"close"),)


class Refusal(Exception):
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
