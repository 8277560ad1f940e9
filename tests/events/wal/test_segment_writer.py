"""Segments on a disk that fails: whatever was committed is read, in order, whatever happened and whenever it ended."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

import msgspec
import pytest
from event_log_examples import PROBLEM, ids_in
from hypothesis import example, given
from hypothesis import strategies as st

from potstill.events.records import RewardRow
from potstill.events.wal import Spool
from potstill.events.wal import segment_writer as writing
from potstill.events.wal.segment import frame, read
from potstill.events.wal.segment_writer import SegmentWriter


def event(name: str) -> bytes:
    return frame(msgspec.msgpack.encode(RewardRow(name, 1, 1.0, None)))


def segment_writer(folder: Path, rotate_bytes: int = 10**6, rotate_seconds: float = 1000.0) -> SegmentWriter:
    folder.mkdir(parents=True, exist_ok=True)
    return SegmentWriter(folder, PROBLEM, rotate_bytes=rotate_bytes, rotate_seconds=rotate_seconds)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


class Crash(BaseException):
    """The process is no more."""


class Disk:
    """The calls of `os` that the writer makes, of which one may fail, or be the last one."""

    CALLS = ("open", "write", "fdatasync", "fsync", "ftruncate", "rename", "unlink", "close")

    def __init__(self) -> None:
        self.real = {name: getattr(os, name) for name in self.CALLS}
        self.failing: dict[str, int] = {}
        self.space: int | None = None
        self.calls_left: int | None = None

    @contextmanager
    def used(self) -> Iterator[None]:
        with mock.patch.multiple(os, **{name: self._call(name) for name in self.CALLS}):
            yield

    def _call(self, name: str):
        def call(*arguments, **options):
            if self.calls_left is not None:
                if self.calls_left == 0:
                    raise Crash
                self.calls_left -= 1
            if name in self.failing:
                raise OSError(self.failing[name], os.strerror(self.failing[name]))
            return self._write(*arguments) if name == "write" else self.real[name](*arguments, **options)

        return call

    def _write(self, descriptor: int, data: memoryview) -> int:
        if self.space is None:
            return self.real["write"](descriptor, data)
        if not self.space:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self.real["write"](descriptor, data[: self.space])
        self.space -= written
        return written


def test_a_segment_is_made_with_its_first_events_and_has_another_name_when_it_is_closed(tmp_path):
    writer = segment_writer(tmp_path / "w")
    assert names(tmp_path / "w") == []
    writer.commit(event("a"))
    assert names(tmp_path / "w") == ["0000000001.open"]
    assert ids_in(tmp_path) == []
    writer.finish()
    writer.finish()
    writer.commit(event("b"))
    assert names(tmp_path / "w") == ["0000000001.log", "0000000002.open"]
    assert ids_in(tmp_path) == ["a"]


def test_events_are_committed_when_data_and_folder_are_synced(tmp_path):
    writer, calls = segment_writer(tmp_path / "w"), []
    for name in ("write", "fdatasync", "fsync"):
        real = getattr(os, name)
        patched = mock.patch.object(os, name, lambda *a, name=name, real=real: (calls.append(name), real(*a))[1])
        patched.start()
    try:
        writer.commit(event("a"))
        assert calls == ["write", "fdatasync", "fsync"]
        calls.clear()
        writer.commit(event("b"))
        assert calls == ["write", "fdatasync"]
    finally:
        mock.patch.stopall()


def test_a_segment_is_due_by_size(tmp_path):
    writer = segment_writer(tmp_path / "w", rotate_bytes=1000)
    assert not writer.due
    assert writer.seconds_left is None
    writer.commit(event("a"))
    assert not writer.due
    writer.commit(event("b") * 100)
    assert writer.due
    writer.finish()
    assert not writer.due


def test_a_segment_is_due_by_age(tmp_path, monkeypatch):
    clock = mock.Mock(return_value=50.0)
    monkeypatch.setattr(writing.time, "monotonic", clock)
    writer = segment_writer(tmp_path / "w", rotate_seconds=10.0)
    writer.commit(event("a"))
    clock.return_value = 57.0
    writer.commit(event("b"))
    assert (writer.seconds_left, writer.due) == (3.0, False)
    clock.return_value = 60.0
    assert (writer.seconds_left, writer.due) == (0.0, True)


@pytest.mark.parametrize("space", [0, 1, 100, 250, 300, 330, 350])
def test_a_full_disk_costs_only_what_was_not_committed(tmp_path, space):
    writer, disk = segment_writer(tmp_path / "w"), Disk()
    with disk.used():
        writer.commit(event("a"))
        disk.space = space
        with pytest.raises(OSError, match="No space left"):
            writer.commit(event("b") * 1000)
        assert read(tmp_path / "w" / "0000000001.log").damage is None
        with pytest.raises(OSError, match="No space left"):
            writer.commit(event("c") * 1000)
        disk.space = None
        writer.commit(event("d"))
        writer.finish()
    assert ids_in(tmp_path) == ["a", "d"]


def test_a_file_is_never_written_again_after_a_failed_sync(tmp_path):
    writer, disk = segment_writer(tmp_path / "w"), Disk()
    with disk.used():
        writer.commit(event("a"))
        disk.failing = {"fdatasync": errno.EIO}
        with pytest.raises(OSError, match="Input/output error"):
            writer.commit(event("b"))
        disk.failing = {}
        writer.commit(event("c"))
    assert names(tmp_path / "w") == ["0000000001.log", "0000000002.open"]
    assert ids_in(tmp_path) == ["a"]


def test_a_file_whose_header_could_not_be_made_is_not_written_to(tmp_path, monkeypatch):
    def fail(*_: object) -> bytes:
        raise MemoryError

    writer = segment_writer(tmp_path / "w")
    with monkeypatch.context() as patch:
        patch.setattr(writing, "start", fail)
        with pytest.raises(MemoryError):
            writer.commit(event("refused"))
    writer.commit(event("a"))
    writer.finish()
    assert ids_in(tmp_path) == ["a"]


def test_a_segment_that_cannot_be_closed_holds_up_the_next_one(tmp_path):
    """Else the lake would take the next one first, and then take this one for done."""
    writer, disk = segment_writer(tmp_path / "w"), Disk()
    with disk.used():
        writer.commit(event("a"))
        disk.failing = {"rename": errno.EIO, "fdatasync": errno.EIO}
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output error"):
                writer.commit(event("b"))
        assert names(tmp_path / "w") == ["0000000001.open"]
        assert 0 < writer.seconds_left <= writing.RETRY_SECONDS
        disk.failing = {}
        writer.commit(event("c"))
    assert names(tmp_path / "w") == ["0000000001.log", "0000000002.open"]


FAILURES = st.dictionaries(st.sampled_from(Disk.CALLS), st.sampled_from([errno.EIO, errno.ENOSPC]), max_size=3)
STEPS = st.tuples(st.sampled_from(["commit", "commit", "finish"]), FAILURES, st.none() | st.integers(0, 500))


def run(writer: SegmentWriter, disk: Disk, steps: list, submitted: list[str], committed: list[str]) -> None:
    for number, (step, disk.failing, disk.space) in enumerate(steps):
        try:
            if step == "finish":
                writer.finish()
                continue
            submitted.append(f"event {number}")
            writer.commit(event(f"event {number}"))
            committed.append(f"event {number}")
        except OSError:
            pass


@given(st.lists(STEPS, max_size=8), st.integers(0, 60), st.floats(0, 1), st.booleans())
@example([("commit", {}, None)] * 2, 60, 0.5, True)
def test_whatever_was_committed_before_a_crash_is_read_in_order(steps, calls, kept, zeros):
    """A crash before any call; then the file system keeps any part of what was not synced, or zeros in its place."""
    with TemporaryDirectory() as place:
        folder, disk = Path(place) / "w", Disk()
        writer, submitted, committed = segment_writer(folder), [], []
        disk.calls_left = calls
        with disk.used():
            try:
                run(writer, disk, steps, submitted, committed)
                disk.calls_left = 0
            except Crash:
                pass
        lose_power(writer, kept, zeros)
        Spool(folder.parent).adopt()
        found = ids_in(folder.parent)
        assert [name for name in found if name in committed] == committed
        assert [name for name in submitted if name in found] == found
    if writer._descriptor is not None:
        os.close(writer._descriptor)


def lose_power(writer: SegmentWriter, kept: float, zeros: bool) -> None:
    path = writer._path
    if path is None or not path.exists():
        return
    written = path.stat().st_size
    size = writer._committed + int(kept * (written - writer._committed))
    os.truncate(path, size)
    if zeros:
        os.truncate(path, written)
