"""A segment: one file of the write-ahead log, readable on its own.

A magic line, then frames: ``u32 length | u32 crc32(payload) | payload``, little endian. The first payload is the
header, which holds the whole problem; each of the others is one event, or a block of decisions, in MessagePack.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from potstill.errors import PotstillError
from potstill.problem import Problem

MAGIC = b"potstill segment\n"
FORMAT = 2  # 1 had no blocks of decisions, and is read as well
OPEN, CLOSED = ".open", ".log"
T = TypeVar("T")

_PREFIX = struct.Struct("<II")
_DAMAGE = (ValueError, msgspec.DecodeError)


class UnreadableSegment(PotstillError, ValueError):
    """A file that is no segment, or whose header is damaged: none of its events can be read."""


class Header(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What a segment says of itself.

    Attributes:
        format: version of the file format.
        writer: the log that wrote it, 32 hex digits.
        number: its place among the segments of that writer, from 1.
        created: microseconds since 1970, UTC.
        problem_text: the whole problem as JSON.
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


class DecisionRow(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="d"):
    """A `LoggedDecision` as it is stored: with its time, and the context's values in the problem's feature order."""

    id: str
    time: int
    action: str
    propensity: float
    policy: int
    eligible: tuple[str, ...] | None
    floor: float | None
    unit: str | None
    mode: str | None
    values: tuple[float | str | bool | None, ...]
    arm: str | None = None  # last, with a default: segments from before there were experiments lack it


class RewardRow(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="r"):
    """A `LoggedReward` as it is stored: with its time."""

    id: str
    time: int
    reward: float
    key: str | None
    metrics: dict[str, float] | None = None


class ObservationRow(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="o"):
    """A `LoggedObservation` as it is stored; without a reward, `reward_time` is the decision's."""

    decision: DecisionRow
    reward: float | None
    reward_time: int
    metrics: dict[str, float] | None = None


Row = DecisionRow | RewardRow | ObservationRow


class DecisionBlock(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="b"):
    """Decisions that were taken together, by columns: written at a fraction of what their rows cost.

    Attributes stand for those of `DecisionRow`. Columns that are None are None in every row.
    """

    ids: list[str]
    time: int
    actions: list[str]
    propensities: list[float]
    policy: int
    eligible: list[tuple[str, ...] | None] | None
    floor: float | None
    units: list[str | None] | None
    mode: str | None
    values: list[tuple[float | str | bool | None, ...]]
    arms: list[str | None] | None = None

    def rows(self) -> Iterator[DecisionRow]:
        """The decisions one by one; ValueError if the columns are not of one length."""
        for name, action, p, eligible, unit, values, arm in zip(
            self.ids,
            self.actions,
            self.propensities,
            self._column(self.eligible),
            self._column(self.units),
            self.values,
            self._column(self.arms),
            strict=True,
        ):
            yield DecisionRow(
                name, self.time, action, p, self.policy, eligible, self.floor, unit, self.mode, values, arm
            )

    def halves(self) -> tuple[DecisionBlock, DecisionBlock]:
        """The same decisions as two blocks."""
        middle = len(self.ids) // 2
        return self._part(slice(middle)), self._part(slice(middle, None))

    def _part(self, places: slice) -> DecisionBlock:
        fields = msgspec.structs.asdict(self)
        return DecisionBlock(**{name: _cut(value, places) for name, value in fields.items()})

    def _column(self, stated: list[T] | None) -> list[T] | list[None]:
        return [None] * len(self.ids) if stated is None else stated


def _cut(value: Any, places: slice) -> Any:
    return value[places] if isinstance(value, list) else value


@dataclass(frozen=True)
class Segment:
    """What could be read of a segment.

    Attributes:
        header: what it says of itself.
        events: the rows before the first damaged one.
        good_bytes: length of the file up to the end of the last good row.
        damage: what is wrong after that; None if all of it could be read.
    """

    header: Header
    events: list[Row]
    good_bytes: int
    damage: str | None


def name(number: int, suffix: str) -> str:
    """The file name of a segment; names sort as numbers do."""
    return f"{number:010d}{suffix}"


def frame(payload: bytes) -> bytes:
    """A payload as it stands in the file."""
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
        UnreadableSegment: not even the header can be read.
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


def read_header(path: Path) -> Header:
    """Only the header; `UnreadableSegment` as for `read`."""
    with path.open("rb") as file:
        beginning = file.read(len(MAGIC) + _PREFIX.size)
        length = int.from_bytes(beginning[len(MAGIC) : len(MAGIC) + 4], "little")
        return _read_header(beginning + file.read(length), path)[0]


def _read_header(data: bytes, path: Path) -> tuple[Header, int]:
    if not data.startswith(MAGIC):
        raise UnreadableSegment(f"{path} is no segment: it does not begin with {MAGIC!r}")
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
    """The payload of the frame at a place, and where the frame ends; ValueError if it is not whole."""
    begin = at + _PREFIX.size
    if begin > len(data):
        raise ValueError("the file ends within its length and checksum")
    length, checksum = _PREFIX.unpack_from(data, at)
    end = begin + length
    if end > len(data):
        raise ValueError(f"its {length} bytes go beyond the end of the file")
    payload = memoryview(data)[begin:end]
    if zlib.crc32(payload) != checksum:
        raise ValueError("its checksum is wrong")
    return payload, end
