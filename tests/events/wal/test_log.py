"""The event log: what it acknowledges is on disk, whoever appends, however it ends."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from event_log_examples import PROBLEM, ids_in, reward

from potstill.events import EventLog, InvalidEvent, LoggedDecision, LogUnavailable
from potstill.events.records import DecisionBlock
from potstill.events.validate import EventValidator
from potstill.events.wal import Spool, segment_writer
from potstill.events.wal import log as wal_log
from potstill.events.wal.segment import frame, read
from potstill.problem import InvalidContext

IMPORTS = "from event_log_examples import *\nfrom potstill.events import *\n"
SECONDS = 20.0  # more than anything here takes


@pytest.fixture
def stopped_disk(monkeypatch):
    """A disk whose syncs wait until they are let through; `syncs` counts those that were begun."""
    disk = threading.Event()
    disk.syncs, disk.begun, real = 0, threading.Event(), segment_writer.sync_data

    def sync(descriptor: int) -> None:
        disk.syncs += 1
        disk.begun.set()
        assert disk.wait(SECONDS)
        real(descriptor)

    monkeypatch.setattr(segment_writer, "sync_data", sync)
    yield disk
    disk.set()


@pytest.fixture
def failing_disk(monkeypatch):
    """A disk whose syncs fail while its `error` is set."""

    class Failing:
        error = None

    real = segment_writer.sync_data

    def sync(descriptor: int) -> None:
        if Failing.error is not None:
            raise OSError(Failing.error, os.strerror(Failing.error))
        real(descriptor)

    monkeypatch.setattr(segment_writer, "sync_data", sync)
    return Failing


def until(condition) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)


def python(program: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", IMPORTS + program, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(program: str, *arguments: object) -> list[str]:
    """What a program prints that has nothing to complain about."""
    with python(program, *arguments) as process:
        out, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (0, "")
    return out.split("\n")[:-1]


def test_what_was_appended_is_read(tmp_path):
    with EventLog(tmp_path, PROBLEM) as log:
        log.append(reward("a"))
        log.append(reward("b"), reward("c"))
    assert ids_in(tmp_path) == ["a", "b", "c"]
    assert Spool(tmp_path).writers() == [log.writer]


def test_a_log_in_which_nothing_was_written_leaves_nothing(tmp_path):
    with EventLog(tmp_path / "new" / "spool", PROBLEM) as log:
        assert Spool(tmp_path / "new" / "spool").writers() == [log.writer]
        log.append()
        log.rotate()
    assert list((tmp_path / "new" / "spool").iterdir()) == []


def test_an_invalid_event_keeps_the_others_of_its_append_out_too(tmp_path):
    decision = LoggedDecision(id="b", context={"returning": 1}, action="hi", propensity=0.5, policy=0)
    with EventLog(tmp_path, PROBLEM) as log:
        with pytest.raises(InvalidContext, match="returning"):
            log.append(reward("a"), decision)
        with pytest.raises(InvalidEvent, match="id"):
            log.append(reward("a"), reward(""))
        log.append(reward("c"))
    assert ids_in(tmp_path) == ["c"]


def decisions_of(size, long=0):
    """A block of decisions about contexts of so many characters, and of a long one at the end."""
    values = [(True, "x" * size)] * 9 + [(True, "x" * (long or size))]
    ids = [f"id-{i}" for i in range(len(values))]
    ones = [1.0] * len(values)
    return DecisionBlock(ids, 1, ["hi"] * len(values), ones, 0, None, None, None, None, values)


@pytest.mark.parametrize("size", [1, 300_000])
def test_a_block_is_written_whatever_its_size(tmp_path, size):
    block = decisions_of(size)
    with EventLog(tmp_path, PROBLEM) as log:
        log.submit_rows([block]).wait()
    (path,) = tmp_path.glob("*/*.log")
    assert read(path).events == list(block.rows())


def test_a_decision_of_a_block_that_is_too_long_keeps_the_others_out_too(tmp_path):
    block = decisions_of(1, long=1_100_000)
    alone = len(msgspec.msgpack.encode(list(block.rows())[-1]))
    with EventLog(tmp_path, PROBLEM) as log:
        with pytest.raises(InvalidEvent, match=f"at most 1048576 bytes, got {alone}"):
            log.submit_rows([block])
        log.append(reward("c"))
    assert ids_in(tmp_path) == ["c"]


def test_what_is_submitted_during_a_sync_shares_the_next_one(tmp_path, stopped_disk):
    with EventLog(tmp_path, PROBLEM) as log:
        first = log.submit(reward("first"))
        stopped_disk.begun.wait(SECONDS)
        commits = {log.submit(reward(i)) for i in range(100)}
        assert len(commits) == 1
        assert first not in commits
        assert not first.done
        with pytest.raises(TimeoutError, match="may still be written"):
            first.wait(timeout=0.01)
        stopped_disk.set()
        commits.pop().wait(SECONDS)
        assert first.done
        assert first.error is None
        assert stopped_disk.syncs == 2
    assert ids_in(tmp_path) == ["first", *map(str, range(100))]


def test_too_much_pending_is_refused_and_what_was_taken_is_written(tmp_path, stopped_disk):
    with EventLog(tmp_path, PROBLEM, pending_bytes=300) as log:
        log.submit(reward("a"))
        stopped_disk.begun.wait(SECONDS)
        one = len(frame(EventValidator(PROBLEM).encode(reward("a"))))
        commits = [log.submit(reward(i)) for i in range(300 // one - 1)]
        with pytest.raises(LogUnavailable, match="wait for a commit before submitting more"):
            log.submit(reward("refused"))
        stopped_disk.set()
        commits[-1].wait(SECONDS)
        log.append(reward("later"))
        with pytest.raises(LogUnavailable, match="submit less at once"):
            log.append(*[reward(i) for i in range(100)])
    assert ids_in(tmp_path) == ["a", *map(str, range(len(commits))), "later"]


def test_callbacks_are_called_once_when_it_is_decided(tmp_path, stopped_disk):
    with EventLog(tmp_path, PROBLEM) as log:
        called = []
        commit = log.submit(reward("a"))
        commit.add_done_callback(lambda commit: called.append((commit, commit.done, threading.current_thread().name)))
        assert called == []
        stopped_disk.set()
        until(lambda: called)
        commit.add_done_callback(lambda commit: called.append("at once"))
        assert called == [(commit, True, "potstill-event-log"), "at once"]


def test_a_callback_that_fails_harms_nobody(tmp_path, stopped_disk, caplog):
    with EventLog(tmp_path, PROBLEM) as log:
        called = []
        commit = log.submit(reward("a"))
        commit.add_done_callback(lambda commit: 1 / 0)
        commit.add_done_callback(called.append)
        stopped_disk.set()
        until(lambda: called == [commit])
        log.append(reward("b"))
    assert "ZeroDivisionError" in caplog.text


def test_a_log_may_be_closed_by_a_callback(tmp_path):
    log = EventLog(tmp_path, PROBLEM)
    log.submit(reward("a")).add_done_callback(lambda commit: log.close())
    log._thread.join(SECONDS)
    log.close()
    assert ids_in(tmp_path) == ["a"]


def test_many_threads_append_at_once(tmp_path):
    with EventLog(tmp_path, PROBLEM, rotate_bytes=5_000) as log:
        threads = [
            threading.Thread(target=lambda t=t: [log.append(reward(f"{t}-{i}")) for i in range(20)]) for t in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(Spool(tmp_path).closed(log.writer)) >= 2
    assert Counter(ids_in(tmp_path)) == Counter(f"{t}-{i}" for t in range(16) for i in range(20))


def test_whoever_appends_while_the_log_is_closed_is_told_or_written(tmp_path):
    acknowledged, refused, started = [], [], threading.Barrier(9)
    log = EventLog(tmp_path, PROBLEM)

    def append(thread: int) -> None:
        started.wait()
        for i in range(10_000):
            try:
                log.append(reward(f"{thread}-{i}"))
                acknowledged.append(f"{thread}-{i}")
            except LogUnavailable as error:
                refused.append(str(error))
                return

    threads = [threading.Thread(target=append, args=[thread]) for thread in range(8)]
    for thread in threads:
        thread.start()
    started.wait()
    until(lambda: len(acknowledged) > 20)
    log.close()
    for thread in threads:
        thread.join()
    assert len(refused) == 8
    assert all("it is closed; open another EventLog" in reason for reason in refused)
    assert sorted(ids_in(tmp_path)) == sorted(acknowledged)


def test_rotation_on_demand(tmp_path):
    with EventLog(tmp_path, PROBLEM) as log:
        commit = log.submit(reward("a"))
        log.rotate()
        assert commit.done
        assert ids_in(tmp_path) == ["a"]
        log.rotate()
        log.append(reward("b"))
        log.rotate()
        assert ids_in(tmp_path) == ["a", "b"]


def test_an_old_segment_is_closed_while_nothing_is_appended(tmp_path):
    with EventLog(tmp_path, PROBLEM, rotate_seconds=0.05) as log:
        log.append(reward("a"))
        until(lambda: ids_in(tmp_path) == ["a"])
        log.append(reward("b"))
        until(lambda: ids_in(tmp_path) == ["a", "b"])


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
def test_appends_go_on_when_the_disk_does(tmp_path, failing_disk, number):
    with EventLog(tmp_path, PROBLEM) as log:
        log.append(reward("a"))
        failing_disk.error = number
        for name in ("b", "c"):
            with pytest.raises(LogUnavailable, match="free space or repair the disk") as raised:
                log.append(reward(name))
            assert raised.value.errno == number
        failing_disk.error = None
        log.append(reward("d"))
    assert ids_in(tmp_path) == ["a", "d"]


def test_all_waiters_of_a_group_are_told(tmp_path, failing_disk, stopped_disk):
    with EventLog(tmp_path, PROBLEM) as log:
        log.submit(reward("a"))
        stopped_disk.begun.wait(SECONDS)
        errors = []
        commit = log.submit(reward("b"))
        commit.add_done_callback(lambda commit: errors.append(commit.error.errno))
        failing_disk.error = errno.EIO
        stopped_disk.set()
        for _ in range(2):
            with pytest.raises(LogUnavailable, match=log.writer):
                commit.wait(SECONDS)
        assert errors == [errno.EIO]
        failing_disk.error = None


def test_close_says_if_what_was_pending_is_lost(tmp_path, failing_disk, stopped_disk):
    log = EventLog(tmp_path, PROBLEM)
    commit = log.submit(reward("a"))
    stopped_disk.begun.wait(SECONDS)
    failing_disk.error = errno.EIO
    threading.Timer(0.05, stopped_disk.set).start()
    with pytest.raises(LogUnavailable, match="Input/output error"):
        log.close()
    assert commit.error.errno == errno.EIO
    assert Spool(tmp_path).writers() == []


def test_a_spool_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LogUnavailable, match="file/spool"):
        EventLog(tmp_path / "file" / "spool", PROBLEM)


def test_a_closed_log_refuses_everything(tmp_path):
    log = EventLog(tmp_path, PROBLEM)
    log.close()
    log.close()
    for call in (lambda: log.append(reward("a")), lambda: log.submit(reward("a")), log.rotate):
        with pytest.raises(LogUnavailable, match="it is closed; open another EventLog"):
            call()


@pytest.mark.parametrize("error", [MemoryError(), ValueError("broken"), OSError(errno.EIO, "broken")])
def test_a_segment_that_cannot_be_closed_does_not_end_the_log(tmp_path, monkeypatch, error):
    def fail(*_: object) -> None:
        raise error

    with EventLog(tmp_path, PROBLEM) as log:
        log.append(reward("a"))
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", fail)
            with pytest.raises(LogUnavailable, match=r"cannot be written.*submit them again"):
                log.rotate()
            with pytest.raises(LogUnavailable):
                log.append(reward("refused"))
        log.append(reward("b"))
        log.rotate()
        log.append(reward("c"))
    assert ids_in(tmp_path) == ["a", "b", "c"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_log_that_ends_without_memory_releases_its_folder(tmp_path, monkeypatch):
    log = EventLog(tmp_path, PROBLEM)
    log.append(reward("a"))

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(wal_log, "remove_if_empty", fail)
    log.close()
    assert log._folder_lock is None
    assert ids_in(tmp_path) == ["a"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_in_the_commit_thread_leaves_nobody_waiting(tmp_path, monkeypatch):
    log = EventLog(tmp_path, PROBLEM)
    monkeypatch.setattr(log._queue, "written", lambda group: 1 / 0)
    with pytest.raises(LogUnavailable, match="has ended"):
        log.append(reward("a"))
    log._thread.join()
    with pytest.raises(LogUnavailable, match="its commit thread has failed"):
        log.append(reward("a"))


def test_what_was_submitted_is_written_when_the_program_ends(tmp_path):
    output("import sys; EventLog(Path(sys.argv[1]), PROBLEM).submit(reward('a'))", tmp_path)
    assert ids_in(tmp_path) == ["a"]


FORK = """
import os, sys, warnings
warnings.simplefilter("ignore")
log = EventLog(Path(sys.argv[1]), PROBLEM)
log.append(reward("before"))
pending = log.submit(reward("pending"))
child = os.fork()
if not child:
    for call in (lambda: log.append(reward("child")), log.rotate, pending.wait):
        try:
            call()
            print("taken" if not pending.done else "done before the fork")
        except LogUnavailable as error:
            print("forked" if "forked" in str(error) else error)
    log.close()
    with EventLog(Path(sys.argv[1]), PROBLEM) as own:
        own.append(reward("own"))
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
log.append(reward("after"))
log.close()
"""


def test_a_forked_child_cannot_use_the_log_and_does_not_harm_it(tmp_path):
    appending, rotating, waiting = output(FORK, tmp_path)
    assert appending == rotating == "forked"
    assert waiting in ("forked", "done before the fork")
    assert sorted(ids_in(tmp_path)) == ["after", "before", "own", "pending"]


ORPHAN = """
import os, sys, time, warnings
warnings.simplefilter("ignore")
log = EventLog(Path(sys.argv[1]), PROBLEM)
log.append(reward("a"))
child = os.fork()
if not child:
    os.close(1)
    os.close(2)
    time.sleep(60)
    os._exit(0)
print(child, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_child_that_outlives_its_parent_does_not_keep_its_folder(tmp_path):
    with python(ORPHAN, tmp_path) as parent:
        child = int(parent.stdout.readline())
        try:
            assert parent.wait(SECONDS) == -signal.SIGKILL
            until(lambda: Spool(tmp_path).adopt() == [] and ids_in(tmp_path) == ["a"])
        finally:
            os.kill(child, signal.SIGKILL)


FULL = """
import resource, sys
log = EventLog(Path(sys.argv[1]), PROBLEM)
log.append(reward("a"))
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), hard))
acknowledged = ["a"]
try:
    for i in range(1000):
        log.append(*[reward(f"{i}-{j}") for j in range(10)])
        acknowledged += [f"{i}-{j}" for j in range(10)]
except LogUnavailable as error:
    assert "File too large" in str(error), error
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
log.append(reward("z"))
log.close()
print(*acknowledged, "z", sep="\\n")
"""


def test_a_file_that_may_not_grow_is_left_whole_and_the_next_one_taken(tmp_path):
    acknowledged = output(FULL, tmp_path, 5000)
    assert 11 < len(acknowledged) < 5000
    assert ids_in(tmp_path) == acknowledged


WRITER = """
import sys, threading
log = EventLog(Path(sys.argv[1]), PROBLEM, rotate_bytes=3000, rotate_seconds=0.05)
def append(thread):
    for i in range(10**9):
        log.append(reward(f"{sys.argv[2]}-{thread}-{i}"))
        print(f"{sys.argv[2]}-{thread}-{i}\\n", end="", flush=True)
for thread in range(4):
    threading.Thread(target=append, args=[thread], daemon=True).start()
threading.Event().wait()
"""


def test_whatever_was_acknowledged_before_kill_9_is_read(tmp_path):
    acknowledged = []
    for kill in range(4):
        with python(WRITER, tmp_path, kill) as writer:
            lines = [writer.stdout.readline()]
            time.sleep(0.1 + 0.05 * kill)
            writer.kill()
            lines += writer.stdout.readlines()
        acknowledged += [line.strip() for line in lines if line.endswith("\n")]
        Spool(tmp_path).adopt()
    found = Counter(ids_in(tmp_path))
    assert len(acknowledged) > 40
    assert [name for name in acknowledged if found[name] != 1] == []
    assert set(found.values()) == {1}


def test_a_server_that_only_appends_needs_no_tables():
    heavy = "[name for name in ('polars', 'deltalake', 'pyarrow', 'obstore', 'jax', 'scipy') if name in sys.modules]"
    assert output(f"import sys, potstill.events.wal.spool; print({heavy})") == ["[]"]
