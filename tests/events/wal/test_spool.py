"""The folder of writers: what the dead left behind is closed, and the living are left alone."""

import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from event_log_examples import PROBLEM, ids_in, reward

from potstill.events import EventLog
from potstill.events.records import RewardRow
from potstill.events.wal import Pending, Spool, spool
from potstill.events.wal.segment import frame, read, start
from potstill.events.wal.spool import adopt_folder, take_folder

CREATED = 1_700_000_000_000_000


def segment(number: int, ids: str, writer: str = "dead") -> bytes:
    events = [frame(msgspec.msgpack.encode(RewardRow(name, 1, 1.0, None))) for name in ids]
    return start(writer, number, CREATED + number, PROBLEM) + b"".join(events)


def leave(spool: Path, files: dict[str, bytes], writer: str = "dead") -> Path:
    folder = spool / writer
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_there_are_no_writers_where_there_is_no_folder(tmp_path):
    folder = Spool(tmp_path / "none")
    assert folder.writers() == []
    assert folder.closed("w") == []
    assert folder.adopt() == []
    assert folder.pending() == Pending(0, 0, None)


def test_files_and_the_quarantine_are_no_writers(tmp_path):
    leave(tmp_path, {"0000000001.log": segment(1, "a")})
    (tmp_path / "quarantine").mkdir()
    (tmp_path / "flush.json").touch()
    assert Spool(tmp_path).writers() == ["dead"]


def test_closed_segments_come_in_order_and_none_after_one_that_is_open(tmp_path):
    files = {f"{number:010d}.log": segment(number, "x") for number in (2, 10, 9, 12)}
    leave(tmp_path, files | {"0000000011.open": segment(11, "y")})
    assert [path.name for path in Spool(tmp_path).closed("dead")] == [
        "0000000002.log",
        "0000000009.log",
        "0000000010.log",
    ]


def test_a_segment_that_a_listing_missed_while_it_was_renamed_is_not_overtaken(tmp_path, monkeypatch):
    """The first listing shows 2 and not 1, whose renaming was going on; the second shows that 3 is there as well."""
    leave(tmp_path, {f"{number:010d}.log": segment(number, "x") for number in (1, 2, 3)})
    real, listings = spool._entries, iter([["0000000002.log"], ["0000000001.log", "0000000002.log", "0000000003.log"]])
    monkeypatch.setattr(spool, "_entries", lambda folder, shown=listings: _only(real(folder), next(shown)))
    assert [path.stem for path in Spool(tmp_path).closed("dead")] == ["0000000001", "0000000002"]


def _only(entries: list, shown: list[str]) -> list:
    return [entry for entry in entries if entry.name in shown]


def test_a_segment_that_a_dead_writer_left_open_is_closed(tmp_path):
    folder = leave(tmp_path, {"0000000001.log": segment(1, "ab"), "0000000002.open": segment(2, "cd")})
    assert Spool(tmp_path).adopt() == []
    assert names(folder) == ["0000000001.log", "0000000002.log", "lock"]
    assert ids_in(tmp_path) == ["a", "b", "c", "d"]


def test_a_torn_end_is_cut_off_and_kept(tmp_path):
    good, torn = segment(1, "ab"), segment(1, "abc")[:-3]
    folder = leave(tmp_path, {"0000000001.open": torn})
    [damage] = Spool(tmp_path).adopt()
    assert "0000000001.open: event 3 at byte" in damage
    assert (folder / "0000000001.log").read_bytes() == good
    [kept] = (tmp_path / "quarantine").iterdir()
    assert str(kept) in damage
    assert kept.read_bytes() == torn[len(good) :]


@pytest.mark.parametrize("data", [b"potstill seg", segment(1, "ab")[:100], b"\0" * 4096])
def test_a_segment_without_a_whole_header_is_kept_in_quarantine(tmp_path, data):
    leave(tmp_path, {"0000000001.open": data})
    [damage] = Spool(tmp_path).adopt()
    assert "0000000001.open" in damage
    assert [path.read_bytes() for path in (tmp_path / "quarantine").iterdir()] == [data]
    assert Spool(tmp_path).writers() == []


@pytest.mark.parametrize("data", [b"", segment(1, "")])
def test_an_open_segment_without_events_is_removed(tmp_path, data):
    leave(tmp_path, {"0000000001.open": data})
    assert Spool(tmp_path).adopt() == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", ["quarantine", "_truncate"])
def test_adopting_again_after_a_failure_on_the_way_comes_to_the_same(tmp_path, monkeypatch, step):
    torn = segment(1, "abc")[:-3]
    leave(tmp_path, {"0000000001.open": torn})
    leave(tmp_path, {"0000000001.open": segment(1, "d", "other")}, "other")

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as failing:
        failing.setattr(Spool if step == "quarantine" else spool, step, fail)
        damages = Spool(tmp_path).adopt()
    assert any("could not be closed for its dead writer: [Errno 28]" in damage for damage in damages)
    Spool(tmp_path).adopt()
    assert ids_in(tmp_path) == ["a", "b", "d"]
    assert [path.read_bytes() for path in (tmp_path / "quarantine").iterdir()] == [torn[len(segment(1, "ab")) :]]


def test_the_segment_of_a_living_writer_is_left_alone(tmp_path):
    with EventLog(tmp_path, PROBLEM) as log:
        log.append(reward("a"))
        before = names(tmp_path / log.writer)
        assert Spool(tmp_path).adopt() == []
        assert names(tmp_path / log.writer) == before == ["0000000001.open", "lock"]
        log.append(reward("b"))
    assert ids_in(tmp_path) == ["a", "b"]


def test_a_folder_is_removed_with_the_last_segment_of_a_dead_writer(tmp_path):
    folder = leave(tmp_path, {"0000000001.log": segment(1, "a"), "0000000002.log": segment(2, "b")})
    Spool(tmp_path).remove("dead", folder / "0000000001.log")
    assert names(folder) == ["0000000002.log", "lock"]
    Spool(tmp_path).remove("dead", folder / "0000000002.log")
    Spool(tmp_path).remove("dead", folder / "0000000002.log")
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_living_writer_stays(tmp_path):
    with EventLog(tmp_path, PROBLEM) as log:
        log.append(reward("a"))
        log.rotate()
        [path] = Spool(tmp_path).closed(log.writer)
        Spool(tmp_path).remove(log.writer, path)
        log.append(reward("b"))
    assert ids_in(tmp_path) == ["b"]
    assert read(tmp_path / log.writer / "0000000002.log").header.number == 2


def test_what_is_pending(tmp_path):
    first, second = segment(2, "a"), segment(3, "b")
    leave(tmp_path, {"0000000003.open": second, "0000000002.log": first, "0000000004.log": b"no segment"})
    assert Spool(tmp_path).pending() == Pending(3, len(first) + len(second) + 10, CREATED + 2)


def test_of_many_adopters_at_once_one_adopts(tmp_path):
    torn = segment(1, "ab")[:-1]
    for number in range(10):
        leave(tmp_path, {"0000000001.open": torn}, f"dead-{number}")
    ready = threading.Barrier(4)

    def adopt(_: int) -> list[str]:
        ready.wait()
        return Spool(tmp_path).adopt()

    with ThreadPoolExecutor(4) as pool:
        damages = [damage for found in pool.map(adopt, range(4)) for damage in found]
    assert len(damages) == 10
    assert ids_in(tmp_path) == ["a"] * 10


def test_adopters_do_not_get_in_the_way_of_logs_that_begin_and_end(tmp_path):
    """A folder may be found, locked and removed by an adopter between the moments it is made and locked."""
    over = threading.Event()

    def adopt() -> None:
        while not over.is_set():
            assert Spool(tmp_path).adopt() == []

    def log(number: int) -> None:
        for i in range(10):
            with EventLog(tmp_path, PROBLEM) as log:
                if i % 2:
                    log.append(reward(f"{number}-{i}"))

    with ThreadPoolExecutor(4) as pool:
        adopters = [pool.submit(adopt) for _ in range(2)]
        logs = [pool.submit(log, number) for number in range(2)]
        try:
            for done in logs:
                done.result()
        finally:
            over.set()
        for adopter in adopters:
            adopter.result()
    assert Counter(ids_in(tmp_path)) == Counter(f"{number}-{i}" for number in range(2) for i in range(1, 10, 2))


def test_a_folder_that_is_removed_before_it_is_locked_is_made_again(tmp_path, monkeypatch):

    folder, real, removed = tmp_path / "w", spool.hold, []

    def hold(path: Path, *, wait: bool) -> int | None:
        if not removed:
            removed.append(path.parent.rmdir())
        return real(path, wait=wait)

    monkeypatch.setattr(spool, "hold", hold)
    lock = take_folder(folder)
    monkeypatch.undo()
    assert removed
    assert names(folder) == ["lock"]
    assert adopt_folder(folder) is None
    spool.os.close(lock)
    adopted = adopt_folder(folder)
    assert adopted is not None
    spool.os.close(adopted)


def test_a_segment_in_the_lake_is_kept_for_a_while_and_no_longer_pending(tmp_path):
    folder = leave(tmp_path, {"0000000001.log": segment(1, "a"), "0000000002.log": segment(2, "b")})
    spool = Spool(tmp_path, remember=60)
    spool.retire("dead", folder / "0000000001.log")
    spool.retire("dead", folder / "0000000001.log")  # another flusher was faster
    assert names(folder) == ["0000000001.done", "0000000002.log", "lock"]
    assert (spool.pending().segments, [path.name for path in spool.closed("dead")]) == (1, ["0000000002.log"])
    os.utime(folder / "0000000002.log", (0, time.time() + 1))
    assert [path.name for path in spool.recent()] == ["0000000002.log", "0000000001.done"]
    spool.retire("dead", folder / "0000000002.log")
    spool.adopt()
    assert names(folder) == ["0000000001.done", "0000000002.done", "lock"]
    os.utime(folder / "0000000001.done", (0, time.time() - 61))
    assert [path.name for path in spool.recent()] == ["0000000002.done"]
    spool.adopt()
    assert names(folder) == ["0000000002.done", "lock"]
    os.utime(folder / "0000000002.done", (0, 0))
    spool.adopt()
    assert not folder.exists()


def test_without_a_time_to_remember_segments_in_the_lake_are_deleted(tmp_path):
    folder = leave(tmp_path, {"0000000001.log": segment(1, "a"), "0000000002.done": segment(2, "b")})
    Spool(tmp_path).adopt()
    assert names(folder) == ["0000000001.log", "lock"]
    Spool(tmp_path).retire("dead", folder / "0000000001.log")
    assert not folder.exists()
