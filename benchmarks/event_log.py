"""The event log: durable appends per second, latency and bytes per event, compared with the raw disk and SQLite.

    python benchmarks/event_log.py                     # about a minute
    python benchmarks/event_log.py --folder /data --rounds 5

Events are decisions with 38 numeric features. "submit" appends from one thread without waiting for each event; "append"
waits for each, in the stated number of threads. Each run records the sizes of the log's group commits. Two peers then
write groups of the same sizes in the same folder: `write` and `fdatasync` of the same number of bytes, which is the
bound, and SQLite with ``journal_mode=WAL, synchronous=FULL``, one transaction per group and no validation. A ratio
above 1 means that the log is faster. CPU is that of the whole process per event, kernel included: it shows the capacity
of a core even on a busy machine. The folder must be on a disk: on tmpfs a sync does nothing.
"""

import argparse
import os
import sqlite3
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec
import numpy as np

import potstill as ps
from potstill.events import EventLog, LoggedDecision
from potstill.events.validate import EventValidator
from potstill.events.wal.segment import frame
from potstill.events.wal.segment_writer import SegmentWriter

FEATURES = 38
IN_FLIGHT = 50_000  # submitted events in flight
PROBLEM = ps.Problem(
    name="benchmark",
    context=[ps.Numeric(f"feature_{i}", low=0, high=1) for i in range(FEATURES)],
    actions=ps.Discrete([f"action-{i}" for i in range(7)]),
)


def decisions(n: int) -> list[LoggedDecision]:
    rng = np.random.default_rng(0)
    names = [feature.name for feature in PROBLEM.context]
    contexts = [dict(zip(names, row, strict=True)) for row in rng.random((1000, FEATURES)).tolist()]
    return [
        LoggedDecision(id=f"upload-{i:09d}", context=contexts[i % 1000], action="action-3", propensity=0.25, policy=17)
        for i in range(n)
    ]


class Cost:
    """Wall-clock and CPU seconds of a block."""

    def __enter__(self) -> "Cost":
        self._clock, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds, self.cpu = time.perf_counter() - self._clock, time.process_time() - self._cpu


class Run(NamedTuple):
    """Measurements of one run of the log: events, cost, latency of each wait, bytes of each group."""

    name: str
    events: int
    cost: Cost
    latencies: list[float]
    groups: list[int]


@contextmanager
def recorded_groups() -> Iterator[list[int]]:
    """Sizes in bytes of the groups that logs write within the block."""
    groups: list[int] = []
    real = SegmentWriter.commit

    def commit(writer: SegmentWriter, data: bytes) -> None:
        groups.append(len(data))
        real(writer, data)

    SegmentWriter.commit = commit
    try:
        yield groups
    finally:
        SegmentWriter.commit = real


def run(name: str, folder: Path, events: int, work: Callable[[EventLog], list[float]]) -> Run:
    with recorded_groups() as groups, EventLog(folder, PROBLEM) as log:
        log.append(decisions(1)[0])
        groups.clear()
        with Cost() as cost:
            latencies = work(log)
        return Run(name, events, cost, latencies, groups)


def submit(folder: Path, events: list[LoggedDecision], at_once: int) -> Run:
    """Submit from one thread, `at_once` events per call."""
    calls = [events[i : i + at_once] for i in range(0, len(events), at_once)]

    def work(log: EventLog) -> list[float]:
        commits = deque(maxlen=IN_FLIGHT // at_once)
        for call in calls:
            if len(commits) == commits.maxlen:
                commits[0].wait()
            commits.append(log.submit(*call))
        commits[-1].wait()
        return []

    return run(f"submit, {at_once} at once", folder, len(events), work)


def append(folder: Path, events: list[LoggedDecision], threads: int) -> Run:
    """Append from several threads, each waiting for each of its events."""

    def work(log: EventLog) -> list[float]:
        latencies: list[float] = []
        workers = [threading.Thread(target=_timed, args=(log, events[i::threads], latencies)) for i in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return latencies

    return run(f"append, {threads} threads", folder, len(events), work)


def _timed(log: EventLog, events: list[LoggedDecision], latencies: list[float]) -> None:
    for event in events:
        started = time.perf_counter()
        log.append(event)
        latencies.append(time.perf_counter() - started)


def raw(folder: Path, groups: list[int]) -> Cost:
    """Cost of writing and syncing the same bytes in the same groups."""
    block = os.urandom(max(groups))
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file, Cost() as cost:
        for size in groups:
            os.write(file.fileno(), memoryview(block)[:size])
            os.fdatasync(file.fileno())
    return cost


def sqlite(folder: Path, groups: list[int], events: list[LoggedDecision], size: int) -> Cost:
    """Cost of encoding the same events and inserting them into SQLite in the same groups."""
    encode = msgspec.msgpack.Encoder().encode
    rows = ((event.id, encode(event)) for event in events)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        database = sqlite3.connect(Path(place) / "events.db", isolation_level=None)
        database.execute("pragma journal_mode=wal")
        database.execute("pragma synchronous=full")
        database.execute("create table events (id text, event blob)")
        with Cost() as cost:
            for group in groups:
                database.execute("begin")
                database.executemany("insert into events values (?, ?)", islice(rows, group // size))
                database.execute("commit")
        database.close()
    return cost


COLUMNS = {
    "run": "<20",
    "events": ">8",
    "groups": ">7",
    "appends/s": ">10,.0f",
    "CPU µs": ">7.1f",
    "p50 ms": ">7.2f",
    "p99 ms": ">7.2f",
    "write+sync/s": ">13,.0f",
    "ratio": ">6.2f",
    "SQLite/s": ">10,.0f",
    "CPU µs ": ">7.1f",
    "ratio ": ">6.2f",
}


def heading() -> None:
    print("\n" + " ".join(f"{name:{style.split('.')[0].rstrip(',')}}" for name, style in COLUMNS.items()))


def row(*cells: object) -> None:
    print(" ".join(f"{cell:{style}}" for cell, style in zip(cells, COLUMNS.values(), strict=True)), flush=True)


def show(result: Run, folder: Path, events: list[LoggedDecision], size: int) -> None:
    """A row of the table; the peers run right after the log."""
    bound, peer = raw(folder, result.groups), sqlite(folder, result.groups, events, size)
    name, count, cost, latencies, groups = result
    rates = [count / taken.seconds for taken in (cost, bound, peer)]
    p50, p99 = np.percentile(latencies or [np.nan], [50, 99]) * 1e3
    row(
        *(name, count, len(groups)),
        *(rates[0], cost.cpu / count * 1e6, p50, p99),
        *(rates[1], rates[0] / rates[1]),
        *(rates[2], peer.cpu / count * 1e6, rates[0] / rates[2]),
    )


def describe(folder: Path, events: list[LoggedDecision], size: int) -> None:
    """Print the cost of one event and of one sync."""
    encode = EventValidator(PROBLEM).encode
    with Cost() as cost:
        for event in events:
            frame(encode(event))
    syncs = [raw(folder, [4096]).seconds * 1e3 for _ in range(50)]
    print(f"{size} bytes per event; {cost.cpu / len(events) * 1e6:.1f} µs of CPU to validate and encode one")
    print(f"write and sync of one page: median {median(syncs):.2f} ms, slowest of 50 {max(syncs):.2f} ms")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="folder on the disk to measure"
    )
    parser.add_argument("--events", type=int, default=200_000, help="number of events of a submit run")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    events = decisions(arguments.events)
    size = len(frame(EventValidator(PROBLEM).encode(events[0])))
    with tempfile.TemporaryDirectory(dir=arguments.folder) as place:
        folder = Path(place)
        describe(folder, events, size)
        for _ in range(arguments.rounds):
            heading()
            for at_once in (1, 100):
                show(submit(folder, events, at_once), folder, events, size)
            for threads in arguments.threads:
                show(append(folder, events[: 200 * threads], threads), folder, events, size)


if __name__ == "__main__":
    main()
