"""A segment: one file of the write-ahead log, readable on its own.

A magic line, then frames: ``u32 length | u32 crc32(payload) | payload``, little endian. The first payload is the
header, which holds the whole problem; each further one is an event, or a block of decisions, in MessagePack.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

from potstill.errors import PotstillError
from potstill.events.records import Row
from potstill.events.wal.resync import PREFIX, frame_at, next_frame
from potstill.events.wal.rows import rows_of
from potstill.problem import Problem

MAGIC = b"potstill segment\n"
FORMAT = 2  # 1 had no blocks of decisions, and at first no unit and mode; it is read as well
OPEN, CLOSED = ".open", ".log"

_DAMAGE = (ValueError, msgspec.DecodeError)


class UnreadableSegment(PotstillError, ValueError):
    """A file is not a segment, or its header is damaged: none of its events can be read."""


class LaterFormat(UnreadableSegment):
    """A segment was written by a later version of Potstill, which can read it.

    Attributes:
        created: When it was created, in microseconds since 1970; 0 if its header does not say so.
    """

    def __init__(self, message: str, created: int) -> None:
        super().__init__(message)
        self.created = created


class Damage(NamedTuple):
    """Bytes of a segment that are no event: from `start` up to, not including, `end`; and what is wrong."""

    start: int
    end: int
    what: str


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
        events: The rows of all intact frames.
        good_bytes: Length of the file up to the end of the last intact frame.
        damages: What is wrong, and where; empty if the file is intact.
    """

    header: Header
    events: list[Row]
    good_bytes: int
    damages: list[Damage]

    @property
    def damage(self) -> str | None:
        """What is wrong, in words; None if the file is intact."""
        return "; ".join(damage.what for damage in self.damages) or None

    @property
    def tail(self) -> Damage | None:
        """Damage behind the last intact frame: a write that was torn, or a damaged end; None if there is none."""
        return self.damages[-1] if self.damages and self.damages[-1].start == self.good_bytes else None


def name(number: int, suffix: str) -> str:
    """The file name of a segment; names sort by number."""
    return f"{number:010d}{suffix}"


def frame(payload: bytes) -> bytes:
    """A payload with its length and checksum."""
    return PREFIX.pack(len(payload), zlib.crc32(payload)) + payload


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
    """Read a segment; bytes that are no intact frame are skipped, up to the next intact one.

    Raises:
        UnreadableSegment: The header cannot be read.
    """
    data = path.read_bytes()
    header, at = _read_header(data, path)
    events: list[Row] = []
    damages: list[Damage] = []
    good = at
    while at < len(data):
        end = None
        try:
            payload, end = frame_at(data, at)
            events += rows_of(payload, header.format)
            good = end
        except _DAMAGE as error:
            end = end or next_frame(data, at)
            where = f"event {len(events) + 1} at byte {at} of {len(data)}"
            damages.append(Damage(at, end, f"{path}: {where}: {error}; {end - at} bytes are skipped"))
        at = end
    return Segment(header, events, good, damages)


def newest_first(path: Path) -> tuple[Header, Iterator[Row]]:
    """The header, and the intact rows from the last frame back to the first, decoded one frame at a time.

    Raises:
        UnreadableSegment: The header cannot be read.
    """
    data = path.read_bytes()
    header, at = _read_header(data, path)
    return header, _backwards(data, at, header.format)


def _backwards(data: bytes, at: int, segment_format: int) -> Iterator[Row]:
    starts: list[int] = []
    while at + PREFIX.size <= len(data):
        starts.append(at)
        at += PREFIX.size + int(PREFIX.unpack_from(data, at)[0])
    for start_of_frame in reversed(starts):
        with contextlib.suppress(*_DAMAGE):
            yield from rows_of(frame_at(data, start_of_frame)[0], segment_format)


def read_header(path: Path) -> Header:
    """Read only the header; `UnreadableSegment` as for `read`."""
    with path.open("rb") as file:
        beginning = file.read(len(MAGIC) + PREFIX.size)
        length = int.from_bytes(beginning[len(MAGIC) : len(MAGIC) + 4], "little")
        return _read_header(beginning + file.read(length), path)[0]


def _read_header(data: bytes, path: Path) -> tuple[Header, int]:
    if not data.startswith(MAGIC):
        raise UnreadableSegment(f"{path} is not a segment: it does not begin with {MAGIC!r}")
    try:
        payload, end = frame_at(data, len(MAGIC))
        outline = msgspec.msgpack.decode(payload, type=_Outline)
        stated = outline.format
        if stated > FORMAT:
            message = f"{path} has format {stated}; this version of Potstill reads 1 to {FORMAT}: it waits for a later"
            raise LaterFormat(f"{message} one", outline.created)
        if stated < 1:
            raise UnreadableSegment(f"{path} has format {stated}; this version of Potstill reads 1 to {FORMAT}")
        return msgspec.msgpack.decode(payload, type=Header), end
    except UnreadableSegment:
        raise
    except _DAMAGE as error:
        raise UnreadableSegment(f"{path}: the header cannot be read: {error}") from error


class _Outline(msgspec.Struct):
    format: int
    created: int = 0
