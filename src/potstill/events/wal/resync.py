"""Frames of a segment, and where to go on reading after a damaged one."""

from __future__ import annotations

import re
import struct
import zlib

#: Length and checksum of a payload.
PREFIX = struct.Struct("<II")
#: Bytes of candidates whose checksum is computed in a search; then the rest counts as damaged. It takes half a second.
BUDGET = 1 << 30
#: How the payload of an event begins in MessagePack: an array whose first item is a tag of one letter.
_EVENT = re.compile(rb"(?:[\x90-\x9f]|\xdc..)\xa1[a-z]", re.DOTALL)


def frame_at(data: bytes, at: int) -> tuple[memoryview, int]:
    """The payload of the frame at an offset, and the end of the frame; ValueError if it is not intact."""
    begin = at + PREFIX.size
    if begin > len(data):
        raise ValueError("the file ends within its length and checksum")
    length, checksum = PREFIX.unpack_from(data, at)
    end = begin + length
    if end > len(data):
        raise ValueError(f"its {length} bytes exceed the end of the file")
    payload = memoryview(data)[begin:end]
    if zlib.crc32(payload) != checksum:
        raise ValueError("its checksum is wrong")
    return payload, end


def next_frame(data: bytes, at: int) -> int:
    """Offset of the next intact frame behind a damaged one; the end of the data if there is none.

    The length of the damaged frame may be right, and is then the way to the next one. Otherwise every place where an
    event can begin is tried.
    """
    stated = _stated_end(data, at)
    if stated is not None and _is_intact(data, stated):
        return stated
    spent = 0
    for match in _EVENT.finditer(data, at + PREFIX.size + 1):
        start = match.start() - PREFIX.size
        length = PREFIX.unpack_from(data, start)[0]
        if length <= len(data) - match.start():
            if _is_intact(data, start):
                return start
            spent += length
        if spent > BUDGET:
            break
    return len(data)


def _stated_end(data: bytes, at: int) -> int | None:
    """Where a frame ends by its own length; None if that is beyond the data."""
    if at + PREFIX.size > len(data):
        return None
    end = at + PREFIX.size + PREFIX.unpack_from(data, at)[0]
    return end if at + PREFIX.size < end <= len(data) else None


def _is_intact(data: bytes, at: int) -> bool:
    try:
        frame_at(data, at)
    except ValueError:
        return False
    return True
