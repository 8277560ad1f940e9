"""Counts in shared memory: none is lost with a worker, and none can end one."""

import os
import threading

import pytest

from potstill.service import counts as service_counts
from potstill.service.counts import REGION, STEP, Counts, create_memory


@pytest.fixture
def memory():
    descriptor = create_memory(3)
    yield descriptor
    os.close(descriptor)


def test_counts_are_summed_over_workers_and_continued_by_a_replacement(memory):
    first, second = Counts(memory, 0, 3), Counts(memory, 2, 3)
    first.count("a").add(2)
    first.count("ü longer key").add(0.5)
    second.count("a").add(3)
    for asked in (first, second, Counts(memory, 1, 3)):
        assert asked.totals() == {"a": 5.0, "ü longer key": 0.5}
    replacement = Counts(memory, 2, 3)
    replacement.count("a").add()
    replacement.count("b").add()
    assert first.totals() == {"a": 6.0, "ü longer key": 0.5, "b": 1.0}


def test_an_entry_that_a_killed_worker_had_begun_is_written_over(memory):
    worker = Counts(memory, 1, 3)
    worker.count("a").add(7)
    used = os.pread(memory, 8, REGION)
    worker.count("lost in the middle").add(9)
    os.pwrite(memory, used, REGION)  # as if it had died before the last step
    replacement = Counts(memory, 1, 3)
    assert replacement.totals() == {"a": 7.0}
    replacement.count("b")
    assert replacement.totals() == {"a": 7.0, "b": 0.0}


def test_more_counts_than_one_step_of_memory(memory):
    worker, keys = Counts(memory, 0, 3), [f"a key of some length {i}" for i in range(STEP // 20)]
    for number, key in enumerate(keys):
        worker.count(key).add(number)
    again = Counts(memory, 0, 3)
    again.count("new").add()
    assert again.totals() == {**{key: float(i) for i, key in enumerate(keys)}, "new": 1.0}


@pytest.mark.parametrize("why", ["no memory", "the region is full"])
def test_without_room_a_worker_counts_for_itself(memory, monkeypatch, caplog, why):
    """A mapping of a file on a full disk would end the process by SIGBUS instead."""

    def full(*_):
        raise OSError(28, "No space left on device")

    worker, other = Counts(memory, 0, 3), Counts(memory, 1, 3)
    worker.count("before").add()
    if why == "no memory":
        monkeypatch.setattr(service_counts.os, "pwrite", full)
    else:
        monkeypatch.setattr(service_counts, "REGION", STEP)
    keys = [f"a key of some length {i}" for i in range(STEP // 20)]
    for key in keys:
        worker.count(key).add()
        worker.count(key).add()
    worker.count("before").add()
    assert worker.totals() == {"before": 2.0, **dict.fromkeys(keys, 2.0)}
    assert other.totals().keys() < worker.totals().keys()
    assert len(caplog.records) == 1


def test_threads_create_counts_at_once():
    counts = Counts()

    def create(thread):
        for number in range(300):
            counts.count(f"{thread} {number}").add()
            counts.count(f"shared {number}")

    threads = [threading.Thread(target=create, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts.totals().values()) == 1200
    assert len(counts.totals()) == 1500
