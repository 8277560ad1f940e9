"""One segment file: what is written is read, and damage anywhere costs only what comes after it."""

import random
import struct
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import potstill as ps
from potstill.events.records import DecisionBlock, DecisionRow, ObservationRow, RewardRow, Row
from potstill.events.wal import resync
from potstill.events.wal.segment import MAGIC, Header, LaterFormat, UnreadableSegment, frame, read, read_header, start

PROBLEM = ps.Problem(
    name="greeting",
    context=[ps.Boolean("returning"), ps.Categorical("country", ["NO", "DE"])],
    actions=ps.Discrete(["hi", "hello"]),
)
BEGINNING = start("w" * 32, 7, 1_700_000_000_000_000, PROBLEM)

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
TIME = st.integers(0, 7_258_118_399_999_999)
NUMBER = st.floats(allow_nan=False, allow_infinity=False)
DECISIONS = st.builds(
    DecisionRow,
    TEXT,
    TIME,
    TEXT,
    NUMBER,
    st.integers(0, 2**63 - 1),
    st.none() | st.lists(TEXT, max_size=3).map(tuple),
    st.none() | NUMBER,
    st.none() | TEXT,
    st.none() | TEXT,
    st.lists(st.none() | st.booleans() | NUMBER | TEXT, max_size=5).map(tuple),
    st.none() | TEXT,
)
REWARDS = st.builds(RewardRow, TEXT, TIME, NUMBER, st.none() | TEXT)
OBSERVATIONS = st.builds(ObservationRow, DECISIONS, st.none() | NUMBER, TIME)
ROWS: st.SearchStrategy[list[Row]] = st.lists(DECISIONS | REWARDS | OBSERVATIONS, max_size=8)


DECISION = DecisionRow("b", 2, "hi", 0.25, 3, ("hi",), 0.1, "user-7", "apprentice", (True, "NO"))


def block(rows: list[DecisionRow]) -> DecisionBlock:
    """Rows as a block; time, policy, floor and mode are those of the first."""
    first = rows[0]
    return DecisionBlock(
        id=[row.id for row in rows],
        time=first.time,
        action=[row.action for row in rows],
        propensity=[row.propensity for row in rows],
        policy=first.policy,
        eligible=None if first.eligible is None else [row.eligible for row in rows],
        floor=first.floor,
        unit=None if first.unit is None else [row.unit for row in rows],
        mode=first.mode,
        values=[row.values for row in rows],
        arm=None if first.arm is None else [row.arm for row in rows],
    )


def alike(rows: list[DecisionRow]) -> list[DecisionRow]:
    """Rows with what those of a block have in common."""
    first = rows[0]
    shared = {"time": first.time, "policy": first.policy, "floor": first.floor, "mode": first.mode}
    empty = {name: None for name in ("eligible", "unit", "arm") if getattr(first, name) is None}
    return [msgspec.structs.replace(row, **shared, **empty) for row in rows]


def payload(row: Row | DecisionBlock) -> bytes:
    return msgspec.msgpack.encode(row)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("segment") / "0000000007.log"


@given(ROWS)
def test_what_is_written_is_read(path, rows):
    data = BEGINNING + b"".join(frame(payload(row)) for row in rows)
    path.write_bytes(data)
    segment = read(path)
    assert segment.events == rows
    assert segment.good_bytes == len(data)
    assert segment.damage is None


@given(st.lists(DECISIONS, min_size=1, max_size=5), ROWS)
def test_a_block_is_read_as_its_decisions(path, decisions, after):
    rows = alike(decisions)
    path.write_bytes(BEGINNING + b"".join(frame(payload(row)) for row in (block(rows), *after)))
    segment = read(path)
    assert segment.events == [*rows, *after]
    assert (segment.damage, segment.good_bytes) == (None, path.stat().st_size)


@given(st.lists(DECISIONS, min_size=2, max_size=7))
def test_the_halves_of_a_block_have_its_decisions(decisions):
    whole = block(alike(decisions))
    assert [row for half in whole.halves() for row in half.rows()] == list(whole.rows())
    assert all(len(half) < len(decisions) for half in whole.halves())


def test_a_block_whose_columns_differ_in_length_is_damage(path):
    odd = msgspec.structs.replace(block([DECISION, DECISION]), action=["hi"])
    path.write_bytes(BEGINNING + frame(payload(DECISION)) + frame(payload(odd)))
    segment = read(path)
    assert segment.events == [DECISION]
    assert "event 2" in segment.damage


def test_segments_from_before_there_were_blocks_are_read(path):
    older = msgspec.structs.replace(read_header_of(BEGINNING, path), format=1)
    path.write_bytes(MAGIC + frame(msgspec.msgpack.encode(older)) + FRAMES[0])
    assert read(path).events == THREE[:1]


def read_header_of(data: bytes, path: Path) -> Header:
    path.write_bytes(data)
    return read_header(path)


def test_a_frame_is_its_length_its_checksum_and_its_payload():
    # 0xCBF43926 is the check value of CRC-32 for these nine digits.
    assert frame(b"123456789") == struct.pack("<II", 9, 0xCBF43926) + b"123456789"


def test_the_header_holds_the_problem(path):
    path.write_bytes(BEGINNING)
    header = read(path).header
    assert (header.writer, header.number, header.created) == ("w" * 32, 7, 1_700_000_000_000_000)
    assert header.problem == PROBLEM
    assert header.problem_hash == PROBLEM.hash
    assert read_header(path) == header


THREE = [
    RewardRow("a", 1, 0.5, None),
    DECISION,
    RewardRow("c", 3, 1.0, "click"),
]
FRAMES = [frame(payload(row)) for row in THREE]
WHOLE = BEGINNING + b"".join(FRAMES)
ENDS = [len(BEGINNING) + sum(map(len, FRAMES[:n])) for n in range(4)]


def test_a_file_cut_at_any_byte_is_read_up_to_the_last_whole_event(path):
    for size in range(len(BEGINNING), len(WHOLE)):
        path.write_bytes(WHOLE[:size])
        segment = read(path)
        whole = sum(end <= size for end in ENDS) - 1
        assert segment.events == THREE[:whole]
        assert segment.good_bytes == ENDS[whole]
        assert (segment.damage is None) == (size == ENDS[whole])


def test_any_byte_that_is_altered_costs_its_event_alone(path):
    for at in range(len(BEGINNING), len(WHOLE)):
        for flip in (0x01, 0x80, 0xFF):
            path.write_bytes(WHOLE[:at] + bytes([WHOLE[at] ^ flip]) + WHOLE[at + 1 :])
            segment = read(path)
            hit = sum(end <= at for end in ENDS) - 1
            assert segment.events == THREE[:hit] + THREE[hit + 1 :]
            (damage,) = segment.damages
            assert (damage.start, damage.end) == (ENDS[hit], ENDS[hit + 1])
            assert f"event {hit + 1} at byte {ENDS[hit]} of {len(WHOLE)}" in damage.what
            assert segment.good_bytes == (ENDS[2] if hit == 2 else len(WHOLE))
            assert (segment.tail is None) == (hit < 2)


def test_reading_goes_on_behind_bytes_that_are_missing_or_foreign(path):
    rows = [RewardRow(f"{number}", number, 0.5, None) for number in range(50)]
    frames = [frame(payload(row)) for row in rows]
    drawn = random.Random(5)
    for _ in range(100):
        noise = drawn.randbytes(drawn.randrange(1, 5000))
        torn = frames[20][drawn.randrange(len(frames[20])) :]
        path.write_bytes(BEGINNING + b"".join([*frames[:20], noise, torn, *frames[21:]]))
        found = read(path).events
        assert found in (rows[:20] + rows[21:], rows)
        assert all(damage.what for damage in read(path).damages)


def test_a_search_for_the_next_event_is_bounded(path, monkeypatch):
    monkeypatch.setattr(resync, "BUDGET", 10_000)
    decoy = struct.pack("<II", 5_000, 1) + payload(THREE[0])
    path.write_bytes(BEGINNING + b"\xff" * 9 + decoy * 1_000 + FRAMES[0] + bytes(10_000))
    segment = read(path)
    assert segment.events == []
    assert segment.good_bytes == len(BEGINNING)
    monkeypatch.setattr(resync, "BUDGET", 1 << 30)
    assert read(path).events == THREE[:1]


def test_no_event_is_read_under_a_header_that_is_cut_or_altered(path):
    for at in range(len(BEGINNING)):
        for data, reading in [(WHOLE[:at], read), (WHOLE[:at] + bytes([WHOLE[at] ^ 1]) + WHOLE[at + 1 :], read_header)]:
            path.write_bytes(data)
            with pytest.raises(UnreadableSegment, match=r"0000000007\.log"):
                reading(path)


def test_zeros_at_the_end_are_damage_and_not_empty_events(path):
    path.write_bytes(WHOLE + bytes(4096))
    segment = read(path)
    assert segment.events == THREE
    assert segment.good_bytes == len(WHOLE)
    assert segment.damage is not None


def test_a_whole_frame_that_is_no_event_is_damage(path):
    for other in (msgspec.msgpack.encode(["x", 1]), msgspec.msgpack.encode({"id": 1}), b"\xc1"):
        path.write_bytes(WHOLE + frame(other) + FRAMES[0])
        assert read(path).events == [*THREE, THREE[0]]
        assert "event 4" in read(path).damage


def test_a_later_format_is_named(path):
    later = {"format": 3, "whatever": True}
    path.write_bytes(MAGIC + frame(msgspec.msgpack.encode(later)))
    with pytest.raises(LaterFormat, match="format 3; this version of Potstill reads 1 to 2"):
        read(path)


def test_another_file_is_no_segment(path):
    path.write_bytes(b"id,reward\na,1\n")
    with pytest.raises(UnreadableSegment, match="is not a segment"):
        read(path)
