"""Writers, flushers and a compactor under load, killed at random moments: is every acknowledged event in the lake once?

Two spools, as of two machines, share a lake. Run as a script, since it forks: its process must have no threads.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

# The processes share few cores.
os.environ.setdefault("POLARS_MAX_THREADS", "1")

import polars as pl

import potstill as ps
from potstill.events import Event, EventLog, LoggedDecision, LoggedObservation, LoggedReward, now
from potstill.events.lake import Flusher, Lake
from potstill.events.lake.maintenance import compact
from potstill.events.wal import QUARANTINE, Spool

PROBLEM = ps.Problem(
    name="crash",
    context=[ps.Numeric("speed", low=0, high=1), ps.Categorical("kind", ["a", "b"]), ps.Boolean("new")],
    actions=ps.Discrete(["left", "right"]),
)


@dataclass
class Summary:
    """What came of it; `lost` and `doubled` name what must not be."""

    rounds: int = 0
    kills: dict[str, int] = field(default_factory=dict)
    torn: int = 0
    quarantined: int = 0
    acknowledged: int = 0
    in_lake: int = 0
    commits: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Places:
    """Where everything is."""

    def __init__(self, folder: Path) -> None:
        self.lake, self.acknowledged = folder / "lake", folder / "acknowledged"
        self.spools = [folder / "spool-0", folder / "spool-1"]
        self.acknowledged.mkdir(parents=True)

    def notes(self, writer: str, begun: int) -> Notes:
        return Notes(self.acknowledged / f"{writer}-{begun}")


@dataclass
class Worker:
    """A process that is begun again whenever it was killed."""

    kind: str
    work: Callable[[int], None]  # told how often it was begun before
    notes: Callable[[int], Notes] | None = None
    pid: int = 0
    begun: int = 0

    def start(self) -> None:
        self.pid = os.fork()
        if not self.pid:
            try:
                self.work(self.begun)
            except BaseException as error:
                print(f"{self.kind}: {error!r}", file=sys.stderr, flush=True)
            os._exit(1)
        self.begun += 1

    def kill(self) -> None:
        """End it; one that ended of its own accord is an error of the harness or of what it tests."""
        pid, self.pid = self.pid, 0
        if not pid:
            return
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            raise RuntimeError(f"a {self.kind} ended of its own accord, with status {status}")


def run(rounds: int, folder: Path, seed: int = 0, on_round: Callable[[Summary], None] = lambda _: None) -> Summary:
    """So many times, kill one or more of the processes at a random moment and begin them again; then count."""
    places, random_ = Places(folder), random.Random(seed)
    summary, began = Summary(), time.monotonic()
    workers = _workers(places)
    with ExitStack() as at_the_end:
        for worker in workers:
            at_the_end.callback(worker.kill)
            worker.start()
        for _ in range(rounds):
            time.sleep(random_.uniform(0.02, 0.4))
            for worker in random_.sample(workers, random_.choice([1, 1, 2, 3])):
                _kill(worker, random_, summary)
            summary.rounds += 1
            on_round(summary)
    _count(places, summary)
    summary.seconds = time.monotonic() - began
    return summary


def _workers(places: Places) -> list[Worker]:
    first, second = places.spools
    writers = [_writer_worker(places, f"writer-{i}", spool) for i, spool in enumerate([first, first, second])]
    flushers = [Worker("flusher", _flusher(places, spool)) for spool in (first, first, second)]
    return [*writers, *flushers, Worker("compactor", _compactor(places))]


def _writer_worker(places: Places, name: str, spool: Path) -> Worker:
    return Worker(name, _writer(places, name, spool), partial(places.notes, name))


def _kill(worker: Worker, random_: random.Random, summary: Summary) -> None:
    worker.kill()
    kind = worker.kind.partition("-")[0]
    summary.kills[kind] = summary.kills.get(kind, 0) + 1
    if worker.notes is not None and random_.random() < 0.5:
        summary.torn += _tear(worker.notes(worker.begun - 1), random_)
    worker.start()


def _tear(notes: Notes, random_: random.Random) -> int:
    """Leave part of a frame at the end of a dead writer's open segment, as a crash in the middle of a write does."""
    torn = 0
    for path in notes.log_folder().glob("*.open"):
        with suppress(FileNotFoundError):  # a flusher has just closed it
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
            os.write(descriptor, random_.randbytes(random_.randrange(1, 200)))
            os.close(descriptor)
            torn += 1
    return torn


class Notes:
    """What one writer process says of itself: its folder, and what was acknowledged to it.

    A line is written after the append has returned; without its end it does not count.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, folder: Path) -> None:
        self.descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.add([str(folder)])

    def add(self, lines: list[str]) -> None:
        os.write(self.descriptor, "".join(f"{line}\n" for line in lines).encode())

    def log_folder(self) -> Path:
        lines = self._lines()
        return Path(lines[0]) if lines else self.path.parent / "none"

    def acknowledged(self) -> list[str]:
        return self._lines()[1:]

    def _lines(self) -> list[str]:
        return self.path.read_text().split("\n")[:-1] if self.path.exists() else []


def _writer(places: Places, name: str, spool: Path) -> Callable[[int], None]:
    def work(begun: int) -> None:
        random_ = random.Random(f"{name} {begun}")
        log = EventLog(spool, PROBLEM, rotate_bytes=50_000, rotate_seconds=random_.uniform(0.02, 0.3), linger=0.0)
        notes = places.notes(name, begun)
        notes.begin(spool / log.writer)
        for batch in range(sys.maxsize):
            events = [_event(f"{name}-{begun}-{batch}-{i}", random_) for i in range(random_.randrange(1, 40))]
            log.append(*events)
            notes.add([name for event in events for name in _names(event)])
            time.sleep(0.001)

    return work


def _event(name: str, random_: random.Random) -> Event:
    context = {"speed": random_.random(), "kind": "a", "new": random_.random() < 0.5}
    decision = LoggedDecision(id=name, context=context, action="left", propensity=0.5, policy=1, time=now())
    reward = LoggedReward(id=name, reward=1.0, key="only")
    return random_.choice([decision, reward, LoggedObservation(decision=decision, reward=2.0)])


def _names(event: Event) -> list[str]:
    """The rows that an event becomes, as `_found` names them."""
    match event:
        case LoggedDecision(id=id):
            return [f"decision {id}"]
        case LoggedReward(id=id):
            return [f"reward {id}"]
        case LoggedObservation(decision=decision):
            return [f"decision {decision.id}", f"reward {decision.id}"]


def _flusher(places: Places, spool: Path) -> Callable[[int], None]:
    def work(begun: int) -> None:
        flusher = Flusher(Spool(spool), Lake(places.lake, PROBLEM))
        while True:
            _no_error(flusher.flush().error)
            time.sleep(0.01)

    return work


def _compactor(places: Places) -> Callable[[int], None]:
    def work(begun: int) -> None:
        lake = Lake(places.lake, PROBLEM)
        while True:
            time.sleep(0.5)
            compact(lake)

    return work


def _no_error(error: str | None) -> None:
    if error is not None:
        raise RuntimeError(error)


def _count(places: Places, summary: Summary) -> None:
    """Flush what is left, and compare."""
    lake = Lake(places.lake, PROBLEM)
    for spool in places.spools:
        _no_error(Flusher(Spool(spool), lake).flush().error)
        if Spool(spool).writers():
            raise RuntimeError(f"the log is not empty after all: {Spool(spool).pending()}")
        summary.quarantined += len(list(spool.glob(f"{QUARANTINE}/*")))
    found = Counter(_found(lake))
    acknowledged = {line for path in places.acknowledged.iterdir() for line in Notes(path).acknowledged()}
    summary.acknowledged, summary.in_lake = len(acknowledged), found.total()
    summary.commits = (lake.version("decisions") or 0) + (lake.version("rewards") or 0)
    summary.lost = sorted(acknowledged - found.keys())
    summary.doubled = sorted(name for name, count in found.items() if count > 1)


def _found(lake: Lake) -> Iterator[str]:
    yield from lake.scan("decisions").select("decision " + pl.col("id")).collect().to_series()
    yield from lake.scan("rewards").select("reward " + pl.col("id")).collect().to_series()


def main() -> None:
    """Print the summary as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(json.dumps(asdict(run(options.rounds, options.folder, options.seed))))


if __name__ == "__main__":
    main()
