"""A segment: one file of the write-ahead log, readable on its own.

A magic line, then frames: ``u32 length | u32 crc32(payload) | payload``, little endian. The first payload is the
header, which holds the whole problem; each further one is an event, or a block of decisions, in MessagePack.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from potstill.errors import PotstillError
from potstill.events.records import DecisionBlock, Row
from potstill.problem import Problem

MAGIC = b"potstill segment\n"
FORMAT = 2  # 1 had no blocks of decisions, and is read as well
OPEN, CLOSED = ".open", ".log"

_PREFIX = struct.Struct("<II")
_DAMAGE = (ValueError, msgspec.DecodeError)


class UnreadableSegment(PotstillError, ValueError):
    """A file is not a segment, or its header is damaged: none of its events can be read."""


class Header(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The header of a segment.

    Attributes:
        format: Version of the file format.
        writer: Id of the log that wrote it, 32 hex digits.
        number: Its number among the segments of that writer, from 1.
        created: Microseconds since 1970, UTC.
        problem_text: The whole problem as JSON.
        problem_hash: `Problem.hash`, for readers that do not compute it.
    """

    format: int
    writer: str
    number: int
    created: int
    problem_text: str
    problem_hash: str

    @cached_property
    def problem(self) -> Problem:
        """The problem that the events were checked against; contexts are in the order of its features."""
        return msgspec.json.decode(self.problem_text, type=Problem)


@dataclass(frozen=True)
class Segment:
    """The readable part of a segment.

    Attributes:
        header: Its header.
        events: The rows before the first damaged one.
        good_bytes: Length of the file up to the end of the last good row.
        damage: What is wrong after that; None if the file is intact.
    """

    header: Header
    events: list[Row]
    good_bytes: int
    damage: str | None


def name(number: int, suffix: str) -> str:
    """The file name of a segment; names sort by number."""
    return f"{number:010d}{suffix}"


def frame(payload: bytes) -> bytes:
    """A payload with its length and checksum."""
    return _PREFIX.pack(len(payload), zlib.crc32(payload)) + payload


def start(writer: str, number: int, created: int, problem: Problem) -> bytes:
    """The first bytes of a segment: magic line and header."""
    header = Header(
        format=FORMAT,
        writer=writer,
        number=number,
        created=created,
        problem_text=msgspec.json.encode(problem).decode(),
        problem_hash=problem.hash,
    )
    return MAGIC + frame(msgspec.msgpack.encode(header))


def read(path: Path) -> Segment:
    """Read a segment up to its end or to the first frame that is short or wrong.

    Raises:
        UnreadableSegment: The header cannot be read.
    """
    data = path.read_bytes()
    header, at = _read_header(data, path)
    decode = msgspec.msgpack.Decoder(Row | DecisionBlock).decode
    events: list[Row] = []
    damage = None
    while at < len(data):
        try:
            payload, end = _payload(data, at)
            event = decode(payload)
            events += list(event.rows()) if isinstance(event, DecisionBlock) else [event]
        except _DAMAGE as error:
            damage = f"{path}: event {len(events) + 1} at byte {at} of {len(data)}: {error}"
            break
        at = end
    return Segment(header, events, at, damage)


def newest_first(path: Path) -> tuple[Header, Iterator[Row]]:
    """The header, and the intact rows from the last frame back to the first, decoded one frame at a time.

    Raises:
        UnreadableSegment: The header cannot be read.
    """
    data = path.read_bytes()
    header, at = _read_header(data, path)
    return header, _backwards(data, at)


def _backwards(data: bytes, at: int) -> Iterator[Row]:
    starts: list[int] = []
    while at + _PREFIX.size <= len(data):
        starts.append(at)
        at += _PREFIX.size + int(_PREFIX.unpack_from(data, at)[0])
    decode = msgspec.msgpack.Decoder(Row | DecisionBlock).decode
    for start_of_frame in reversed(starts):
        with contextlib.suppress(*_DAMAGE):
            event = decode(_payload(data, start_of_frame)[0])
            yield from event.rows() if isinstance(event, DecisionBlock) else (event,)


def read_header(path: Path) -> Header:
    """Read only the header; `UnreadableSegment` as for `read`."""
    with path.open("rb") as file:
        beginning = file.read(len(MAGIC) + _PREFIX.size)
        length = int.from_bytes(beginning[len(MAGIC) : len(MAGIC) + 4], "little")
        return _read_header(beginning + file.read(length), path)[0]


def _read_header(data: bytes, path: Path) -> tuple[Header, int]:
    if not data.startswith(MAGIC):
        raise UnreadableSegment(f"{path} is not a segment: it does not begin with {MAGIC!r}")
    try:
        payload, end = _payload(data, len(MAGIC))
        stated = msgspec.msgpack.decode(payload, type=_Format).format
        if not 1 <= stated <= FORMAT:
            raise UnreadableSegment(f"{path} has format {stated}; this version of Potstill reads 1 to {FORMAT}")
        return msgspec.msgpack.decode(payload, type=Header), end
    except UnreadableSegment:
        raise
    except _DAMAGE as error:
        raise UnreadableSegment(f"{path}: the header cannot be read: {error}") from error


class _Format(msgspec.Struct):
    format: int


def _payload(data: bytes, at: int) -> tuple[memoryview, int]:
    """The payload of the frame at an offset, and the end of the frame; ValueError if it is incomplete."""
    begin = at + _PREFIX.size
    if begin > len(data):
        raise ValueError("the file ends within its length and checksum")
    length, checksum = _PREFIX.unpack_from(data, at)
    end = begin + length
    if end > len(data):
        raise ValueError(f"its {length} bytes exceed the end of the file")
    payload = memoryview(data)[begin:end]
    if zlib.crc32(payload) != checksum:
        raise ValueError("its checksum is wrong")
    return payload, end
