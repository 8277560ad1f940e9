"""Addresses, the key and the errors of Personalizer, in terms of the service."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from potstill.service.http import Headers, Refusal, Reply, header, unfit
from potstill.service.personalizer.wire import ErrorDetail, PersonalizerError

#: The header in which callers of Personalizer send their key: here, a token.
KEY_HEADER = "Ocp-Apim-Subscription-Key"
_KEY = KEY_HEADER.lower().encode()
#: Where the id of an event is in the path of a row.
EVENT_ID = "{eventId}"
_ROOT = "/personalizer/"
#: v1.0, and the previews of v1.1, whose requests here are the same.
_PATH = re.compile(r"/personalizer/v1\.(?:0|1-preview\.\d)/(.+)")
_EVENT = re.compile(r"(events/)(.+)(/(?:reward|activate))")
_SLOTS = "several slots in one request are not supported: a decision here has one action. Send a rank request per slot"
_CODES = {404: "ResourceNotFound", 405: "ResourceNotFound"}


class Matched(NamedTuple):
    """A path of Personalizer: as the endpoint table has it, and the event that it names."""

    row: str
    event: str


def is_personalizer(path: str) -> bool:
    """Whether an address is one of Personalizer's."""
    return path.startswith(_ROOT)


def match(path: str) -> Matched | None:
    """What an address asks for; None if it is no address of Personalizer. `Refusal` if it is about several slots."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    if found[1].startswith("multislot/"):
        raise unfit(_SLOTS)
    event = _EVENT.fullmatch(found[1])
    return Matched(found[1], "") if event is None else Matched(f"{event[1]}{EVENT_ID}{event[3]}", event[2])


def with_key(headers: Headers) -> Headers:
    """Headers with the key of Personalizer as the token, if there is no other."""
    key = header(headers, _KEY)
    if key is None or header(headers, b"authorization") is not None:
        return headers
    return [*headers, (b"authorization", b"Bearer " + key)]


def refused(refusal: Refusal) -> Reply:
    """A refusal as Personalizer shapes it: what does not fit is a bad request."""
    status = 400 if refusal.status == 422 else refusal.status
    code = "InternalServerError" if status >= 500 else _CODES.get(status, "BadRequest")
    message = refusal.message.encode(errors="replace").decode()
    found = PersonalizerError(ErrorDetail(code, message))  # type: ignore[arg-type]
    return Reply(msgspec.json.encode(found), status, headers=refusal.headers)
