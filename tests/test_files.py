"""Atomic writes: between threads, between processes with equal ids, and after a kill."""

import os
import stat
import subprocess
import sys
import threading
import time

import pytest

from potstill import files
from potstill.files import SHARED, STALE, create_atomically, make_folder, remove_stale, write_atomically

#: Long enough to be written in several pages, so that a torn file shows.
CONTENTS = [bytes([ord("a") + i]) * (20_000 + 7_000 * i) for i in range(4)]
WRITER = """
import os, sys
os.getpid = lambda: 1  # as in a container
from potstill.files import write_atomically
content = chr(ord("a") + int(sys.argv[2])).encode() * (20_000 + 7_000 * int(sys.argv[2]))
for _ in range(60):
    write_atomically(sys.argv[1], content)
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, CONTENTS[0])
    return path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def torn(path, ended):
    """Read a file until `ended`; the contents that nobody wrote."""
    found = []
    while not ended():
        if (data := path.read_bytes()) not in CONTENTS:
            found.append(len(data))
    return found


def test_threads_that_write_one_file_at_once_do_not_disturb_each_other(path, monkeypatch):
    """All have written their data and none has renamed its file yet: the worst moment, on purpose."""
    together, sync, errors = threading.Barrier(4), os.fsync, []

    def fsync(descriptor):
        sync(descriptor)
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            together.wait(10)

    def write(content):
        try:
            write_atomically(path, content)
        except OSError as error:
            errors.append(error)

    monkeypatch.setattr(files.os, "fsync", fsync)
    threads = [threading.Thread(target=write, args=(content,)) for content in CONTENTS]
    for thread in threads:
        thread.start()
    found = torn(path, lambda: not any(thread.is_alive() for thread in threads))
    assert errors == []
    assert found == []
    assert path.read_bytes() in CONTENTS
    assert names(path.parent) == ["file"]


def test_processes_with_equal_ids_do_not_disturb_each_other(path):
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, path, str(i)]) for i in range(4)]
    found = torn(path, lambda: all(writer.poll() is not None for writer in writers))
    assert [writer.returncode for writer in writers] == [0] * 4
    assert found == []
    assert names(path.parent) == ["file"]


def test_a_failed_write_changes_nothing_and_leaves_nothing(path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    for write in (write_atomically, create_atomically):
        with pytest.raises(OSError, match="No space"):
            write(path, b"new")
    assert path.read_bytes() == CONTENTS[0]
    assert names(path.parent) == ["file"]


def test_the_data_is_synced_before_its_name_and_the_name_before_the_return(path, monkeypatch):
    steps, sync, replace = [], os.fsync, type(path).replace

    def fsync(descriptor):
        steps.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    monkeypatch.setattr(files.os, "fsync", fsync)
    monkeypatch.setattr(type(path), "replace", lambda *names: steps.append("name") or replace(*names))
    write_atomically(path, b"new")
    assert steps == ["file", "name", "folder"]


def test_a_file_is_created_once(tmp_path):
    create_atomically(tmp_path / "a", b"one")
    with pytest.raises(FileExistsError):
        create_atomically(tmp_path / "a", b"two")
    assert (tmp_path / "a").read_bytes() == b"one"
    assert names(tmp_path) == ["a"]


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_files_and_folders_are_private_for_any_umask(tmp_path):
    before = os.umask(0)
    try:
        make_folder(tmp_path / "a" / "b")
        write_atomically(tmp_path / "a" / "b" / "c", b"")
        create_atomically(tmp_path / "a" / "b" / "d", b"")
        write_atomically(tmp_path / "shared", b"", SHARED)
        os.close(files.hold(tmp_path / "lock", wait=True))
    finally:
        os.umask(before)
    assert [mode(tmp_path / name) for name in ("a", "a/b")] == [0o700] * 2
    assert [mode(tmp_path / name) for name in ("a/b/c", "a/b/d", "lock")] == [0o600] * 3
    assert mode(tmp_path / "shared") == 0o666


def test_what_killed_writers_left_is_removed_a_day_later(tmp_path):
    long_ago = time.time() - 2 * STALE
    for name in (".a.json.0123abcdef.tmp", ".a.json.4711.tmp", "a.json", ".tmp", "b.tmp", ".note.tmp", ".c.ab.tmp"):
        (tmp_path / name).touch()
        if name != ".c.ab.tmp":  # may still be written
            os.utime(tmp_path / name, (long_ago, long_ago))
    remove_stale(tmp_path)
    remove_stale(tmp_path / "missing")
    assert names(tmp_path) == [".c.ab.tmp", ".note.tmp", ".tmp", "a.json", "b.tmp"]
