"""Decisions are found by id in the segments on disk, open, closed or in the lake."""

import os
from pathlib import Path

import msgspec
import pytest
from event_log_examples import PROBLEM

import potstill as ps
from potstill.events.records import DecisionBlock, DecisionRow, RewardRow, Row
from potstill.events.wal import Spool, find_decisions, last_decisions, recall
from potstill.events.wal.segment import frame, newest_first, start

HASH = PROBLEM.hash


def decision(name: str, time: int = 1, action: str = "hi", mode: str | None = None) -> DecisionRow:
    return DecisionRow(name, time, action, 0.5, 1, None, None, None, mode, (True,))


def of_problem(header) -> bool:
    return header.problem_hash == HASH


def write(spool: Path, name: str, *rows: Row | DecisionBlock, writer: str = "w", problem: ps.Problem = PROBLEM) -> Path:
    (spool / writer).mkdir(parents=True, exist_ok=True)
    frames = [frame(msgspec.msgpack.encode(row)) for row in rows]
    path = spool / writer / name
    path.write_bytes(start(writer, 1, 1, problem) + b"".join(frames))
    return path


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    block = DecisionBlock(["e", "f"], 1, ["hi", "hello"], [0.5, 0.5], 1, None, None, None, None, [(True,), (False,)])
    write(tmp_path, "0000000001.done", decision("a"), RewardRow("x", 1, 1.0, None))
    write(tmp_path, "0000000002.log", decision("b"), decision("bb"))
    write(tmp_path, "0000000003.open", decision("c"))
    write(tmp_path, "0000000001.open", decision("d"), block, writer="other")
    return Spool(tmp_path, remember=60)


@pytest.mark.parametrize("few", [0, 16])
def test_decisions_are_found_in_segments_of_every_state(spool, few, monkeypatch):
    monkeypatch.setattr(recall, "FEW", few)
    names = ["a", "b", "c", "d", "f", "x", "none"]
    assert sorted(find_decisions(spool, of_problem, names)) == ["a", "b", "c", "d", "f"]
    assert find_decisions(spool, of_problem, ["f"])["f"].action == "hello"
    assert find_decisions(spool, lambda header: False, names) == {}
    assert sorted(last_decisions(spool, of_problem, 100)) == ["a", "b", "bb", "c", "d", "e", "f"]


def test_the_last_segments_are_read_first_and_no_more_than_needed(tmp_path):
    for i in range(5):
        path = write(tmp_path, f"000000000{i}.done", *[decision(f"{i}-{j}") for j in range(10)])
        os.utime(path, (0, path.stat().st_mtime - 10 + i))
    found = last_decisions(Spool(tmp_path, remember=60), of_problem, 15)
    assert {name[0] for name in found} == {"4", "3"}


def test_a_fallback_that_was_answered_comes_before_the_decision_that_it_replaced(tmp_path):
    spool = Spool(tmp_path, remember=60)
    write(tmp_path, "0000000001.open", decision("a", 10), decision("a", 9, "hello", "fallback"))
    assert find_decisions(spool, of_problem, ["a"])["a"].mode == "fallback"
    assert last_decisions(spool, of_problem, 9)["a"].mode == "fallback"


def test_segments_that_are_renamed_deleted_or_damaged_meanwhile_are_no_fault(spool, monkeypatch):
    listed = spool.recent()
    monkeypatch.setattr(spool, "recent", lambda: listed)
    for path in listed:
        if path.suffix != ".done":
            path.rename(path.with_suffix(".done" if path.stem.endswith("3") else ".log"))
    assert len(last_decisions(spool, of_problem, 100)) == len(find_decisions(spool, of_problem, "abcdef")) + 1 == 7
    for path in spool.path.glob("w/*"):
        path.unlink()
    (spool.path / "other" / "0000000001.log").write_bytes(b"damaged d")
    assert last_decisions(spool, of_problem, 100) == find_decisions(spool, of_problem, ["a", "d"]) == {}


def test_rows_come_from_the_last_frame_back_and_damaged_ones_are_left_out(tmp_path):
    path = write(tmp_path, "0000000001.open", *[decision(name) for name in "abcde"])
    data = path.read_bytes()
    header, rows = newest_first(path)
    assert (header.problem_hash, [row.id for row in rows]) == (HASH, list("edcba"))
    path.write_bytes(data[:-1])  # torn while it was written
    assert [row.id for row in newest_first(path)[1]] == list("dcba")
    place = data.rindex(b"\xa1c")
    path.write_bytes(data[:place] + b"\xa1x" + data[place + 2 :])
    assert [row.id for row in newest_first(path)[1]] == list("edba")
