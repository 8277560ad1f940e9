"""A simulated world: hosts with workers, flushers and updaters, clients and devices, one store; and what befalls them.

The whole run, faults included, follows from its seed and its options.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

from simulation import actors, delta, service
from simulation.actors import Client, Device, FlusherActor, Operator, Updater
from simulation.disk import Disks
from simulation.oracle import DEFAULT, SETTLE, WINDOW, Oracle
from simulation.scheduler import MILLISECOND, SECOND, Process, Scheduler
from simulation.service import Network, SimulatedHttp, SimulatedLog, Worker
from simulation.store import ROOT, SimulatedStorage, Store

import potstill as ps
from potstill.service.process.flusher import WorkspaceFlusher
from potstill.workspace import Workspace
from potstill.workspace.config import Config, JoinConfig, LogConfig, UpdateConfig

PLACE = f"{ROOT}/workspace"
DAY = 86_400
PROBLEM = ps.Problem(
    name="simulated",
    context=[ps.Boolean("returning")],
    actions=ps.Discrete(["a", "b", "c"]),
    reward=ps.Reward(default=DEFAULT, window=f"{WINDOW}s"),
)
PROBLEM_TOML = f"""
name = "simulated"

[[context]]
name = "returning"
type = "boolean"

[actions]
type = "discrete"
names = ["a", "b", "c"]

[reward]
default = {DEFAULT}
window = "{WINDOW}s"
"""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a world has, and what may befall it.

    Attributes:
        hosts: Number of hosts with workers and a flusher.
        decisions: Decisions that clients ask for.
        device_decisions: Decisions that the device takes.
        seconds: Virtual seconds in which faults occur.
        kills: Processes are killed, and start again.
        power_cuts: Hosts lose what is not synced.
        outages: Hosts cannot reach the store for a while, also longer than window and settling time.
        pauses: Processes stand still for a while.
        delays: Calls sometimes take seconds, or a minute.
        lost_answers: The store's answers to writes get lost.
        network: Requests and replies get lost, or are duplicated and arrive late.
        skew: Clocks of hosts differ by up to so many seconds.
        retries: Clients ask again under the same id after all attempts of a call failed.
        keyless: Clients send equal rewards without keys.
        clock_jumps: The clock of a host goes two days ahead for a while.
        deletions: The newest entry of the registry is deleted.
        compaction: The lake is compacted.
    """

    hosts: int = 2
    decisions: int = 12
    device_decisions: int = 3
    seconds: int = 300
    kills: bool = True
    power_cuts: bool = True
    outages: bool = True
    pauses: bool = True
    delays: bool = True
    lost_answers: bool = True
    network: bool = True
    skew: float = 2.0
    retries: bool = True
    keyless: bool = True
    clock_jumps: bool = True
    deletions: bool = True
    compaction: bool = True


#: Nothing befalls this world.
QUIET = replace(Options(), skew=0.0, **{one.name: False for one in fields(Options) if one.default is True})


class Outcome(NamedTuple):
    """Result of a world: contradictions to the invariant, and a hash of everything that happened."""

    violations: list[str]
    digest: str
    lines: list[str]
    steps: int


class Host:
    """A machine, with its disk and its clock."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self.name = world, name
        self.folder = world.disks.make_host(name)
        self.skew = 0
        self.programs: list[tuple[str, Callable[[Process], None]]] = []
        self.processes: list[Process] = []

    def clock(self) -> int:
        """Microseconds since 1970 by the clock of this host."""
        return self._world.scheduler.now + self.skew

    def workspace(self) -> Workspace:
        """The workspace as a process of this host opens it."""
        config = Config(
            join=JoinConfig(aggregate="sum", settle=f"{SETTLE}s"),
            update=UpdateConfig(min_observations=1),
            log=LogConfig(spool=str(self.folder / "spool"), rotate_seconds=5.0),
        )
        return Workspace(PLACE, PROBLEM, config)


class World:
    """Runs one seed.

    Args:
        seed: Determines everything.
        options: What may befall the world.
        keep: Whether to keep the lines of the trace.
    """

    def __init__(self, seed: int, options: Options | None = None, *, keep: bool = False) -> None:
        self.options = options or Options()
        self.scheduler = Scheduler(seed, keep=keep)
        self.random = self.scheduler.random
        self.oracle = Oracle()
        self.store = Store(self.scheduler, self.oracle.stored)
        self.network = Network(self)
        self._folder = Path(tempfile.mkdtemp(prefix="simulation-", dir=_memory()))
        self.disks = Disks(self.scheduler, self._folder)
        self._lives = 0
        self._faults = False

    def run(self) -> Outcome:
        """Run the world to its end, let it recover, and check it."""
        try:
            with self._installed():
                self._begin()
                self.scheduler.run(lambda: self._lives == 0 and not self._faults)
                self._recover()
                violations = self.oracle.violations(self._hosts[0].workspace())
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        return Outcome(violations, self.scheduler.digest, self.scheduler.lines or [], self.scheduler.steps)

    def _begin(self) -> None:
        options = self.options
        self.store.files[f"{PLACE}/problem.toml"] = PROBLEM_TOML.encode()
        self._hosts = [Host(self, f"host{number}") for number in range(options.hosts)]
        edge, outside = Host(self, "device"), Host(self, "outside")
        for host in [*self._hosts, edge]:
            host.skew = int(self.random.uniform(-options.skew, options.skew) * SECOND)
        for host in self._hosts:
            for number in range(self.random.randint(1, 2)):
                host.programs.append((f"worker{number}", self._worker))
            host.programs.append(("flusher", lambda process: FlusherActor(self, process.host).run()))
            host.programs.append(("updater", lambda process: Updater(self, process.host).run()))
        operator = Operator(self, self._hosts[0])
        self._hosts[0].programs.append(("operator", lambda _: operator.run()))
        device = Device(self, edge, "device")
        self._lives += 1
        edge.programs.append(("edge", lambda _: self._live(device.run)))
        for host in [*self._hosts, edge]:
            for name, program in host.programs:
                self._start(host, name, program, self.random.randint(0, 5_000) * MILLISECOND)
        process = Process(outside, "clients")
        for number in range(options.decisions):
            self._lives += 1
            client, delay = Client(self, outside, "client"), self.random.randint(0, options.seconds) * SECOND
            self.scheduler.spawn(process, lambda n=number, c=client: self._live(lambda: c.live(n)), delay)
        self._faults, self.scheduler.calm = True, not options.delays
        self.scheduler.at(self.random.randint(1, 60) * SECOND, lambda: self._befall(edge))
        self.scheduler.at(options.seconds * SECOND, self._end_faults)
        self.store.losing = 0.02 if options.lost_answers else 0.0
        self.network.faulty = 0.06 if options.network else 0.0

    def _live(self, life: Callable[[], None]) -> None:
        life()
        self._lives -= 1

    def _worker(self, process: Process) -> None:
        worker = Worker(self, process, process.host.workspace())
        self.network.workers.append(worker)
        worker.run()

    def _start(self, host: Host, name: str, program: Callable[[Process], None], delay: int) -> None:
        process = Process(host, f"{host.name}/{name}")
        host.processes.append(process)
        self.scheduler.spawn(process, lambda: program(process), delay)

    # What befalls the world. None of this runs in a task.

    def _befall(self, edge: Host) -> None:
        if not self._faults:
            return
        options, random = self.options, self.random
        chosen = [
            act
            for wanted, act in (
                (options.kills, lambda: self._kill(random.choice([*self._hosts, edge]))),
                (options.power_cuts, lambda: self._cut_power(random.choice(self._hosts))),
                (options.outages, lambda: self._outage(random.choice(self._hosts))),
                (options.pauses, lambda: self._pause(random.choice(self._hosts))),
                (options.clock_jumps and random.random() < 0.3, lambda: self._jump(random.choice(self._hosts))),
                (options.deletions and random.random() < 0.3, self._delete_entry),
            )
            if wanted
        ]
        if chosen:
            random.choice(chosen)()
        self.scheduler.at(random.randint(1, 60) * SECOND, lambda: self._befall(edge))

    def _end_faults(self) -> None:
        self._faults = False
        self.store.away.clear()
        self.store.losing = self.network.faulty = 0.0
        self.scheduler.calm = True

    def _kill(self, host: Host) -> None:
        running = [process for process in host.processes if process.tasks]
        if running:
            process = self.random.choice(running)
            self.scheduler.trace(f"kill {process.name}")
            self._end(process)
            name = process.name.partition("/")[2]
            self._start(host, name, dict(host.programs)[name], self.random.randint(1, 20_000) * MILLISECOND)

    def _cut_power(self, host: Host) -> None:
        self.scheduler.trace(f"power cut {host.name}")
        for process in list(host.processes):
            self._end(process)
        self.disks.cut_power(host.name)
        delay = self.random.randint(1, 60) * SECOND
        for name, program in host.programs:
            self._start(host, name, program, delay)

    def _end(self, process: Process) -> None:
        self.scheduler.kill(process)
        self.disks.release(process)
        process.host.processes.remove(process)

    def _outage(self, host: Host) -> None:
        """For some seconds, or for longer than window and settling time."""
        longest = self.random.choice((20, 2 * (WINDOW + SETTLE)))
        self.scheduler.trace(f"outage {host.name}")
        self.store.away.add(host.name)
        self.scheduler.at(self.random.randint(1, longest) * SECOND, lambda: self.store.away.discard(host.name))

    def _pause(self, host: Host) -> None:
        process = self.random.choice(host.processes)
        self.scheduler.trace(f"pause {process.name}")
        process.paused_until = self.scheduler.now + self.random.randint(1, 2 * (WINDOW + SETTLE)) * SECOND

    def _jump(self, host: Host) -> None:
        self.scheduler.trace(f"jump {host.name}")
        before = host.skew
        host.skew += 2 * DAY * SECOND

        def put_right() -> None:
            host.skew = before

        self.scheduler.at(self.random.randint(5, 60) * SECOND, put_right)

    def _delete_entry(self) -> None:
        entries = sorted(address for address in self.store.files if "/registry/entries/" in address)
        if len(entries) > 1:
            self.scheduler.trace("delete entry")
            del self.store.files[entries[-1]]

    # Afterwards.

    def _recover(self) -> None:
        """Stop the workers in good order, let all logs drain, and update until nothing is pending."""
        for host in self._hosts:
            for process in [one for one in host.processes if one.name.endswith(("updater", "operator"))]:
                self._end(process)
        for worker in self.network.workers:
            worker.stopping = True
        ends = self.scheduler.now + (WINDOW + SETTLE + 120) * SECOND
        self.scheduler.at(ends - self.scheduler.now, lambda: None)
        self.scheduler.run(lambda: self.scheduler.now >= ends)
        for host in self._hosts:
            for process in list(host.processes):
                self._end(process)
        # The end is later than any clock was ahead.
        self.scheduler.now += (3 if self.options.clock_jumps else 0) * DAY * SECOND
        self._by_itself("drain", self._drain)
        self._by_itself("settle", self._settle)

    def _drain(self) -> None:
        for host in self._hosts:
            flusher = WorkspaceFlusher(host.workspace())
            self.scheduler.process.host = host
            for _ in range(2):
                flusher.flush(wait=True)

    def _settle(self) -> None:
        host = self._hosts[0]
        self.scheduler.process.host = host
        updater = Updater(self, host)
        for _ in range(10):
            report = updater.update(host.workspace())
            assert report is not None, "an update fails in a world that has recovered"
            assert report.joined is not None
            if not report.joined.decisions and not report.joined.pending:
                return
        raise AssertionError(f"decisions are still pending: {report.joined}")

    def _by_itself(self, name: str, function: Callable[[], None]) -> None:
        """Run a task to its end while nothing else runs."""
        done: Future[None] = Future()

        def act() -> None:
            function()
            done.set_result(None)

        self.scheduler.spawn(Process(self._hosts[0], name), act)
        self.scheduler.run(done.done)

    # What the code under test sees of the world.

    @contextlib.contextmanager
    def _installed(self) -> Iterator[None]:
        Store.current, SimulatedLog.scheduler, SimulatedHttp.network = self.store, self.scheduler, self.network
        with contextlib.ExitStack() as stack, self.disks.installed():
            for target, value in self._replacements():
                stack.enter_context(mock.patch(target, value))
            stack.callback(logging.disable, logging.root.manager.disable)
            logging.disable(logging.CRITICAL)
            yield

    def _replacements(self) -> Iterator[tuple[str, Any]]:
        yield "time.time_ns", self._clock(time.time_ns, lambda host: host.clock() * 1000)
        yield "time.time", self._clock(time.time, lambda host: host.clock() / SECOND)
        yield "time.monotonic", self._clock(time.monotonic, lambda _: self.scheduler.now / SECOND)
        yield "time.monotonic_ns", self._clock(time.monotonic_ns, lambda _: self.scheduler.now * 1000)
        yield "os.urandom", self._entropy
        yield "random._urandom", self._entropy
        yield "potstill.client.wire.now", self._present
        yield "potstill.client.edge.now", self._present
        yield "potstill.storage.ObjectStorage", SimulatedStorage
        yield "potstill.events.lake.table.DeltaTable", delta.SimulatedTable
        yield "potstill.events.lake.delta.DeltaTable", delta.SimulatedTable
        yield "potstill.events.lake.delta.write_deltalake", delta.write_deltalake
        yield "polars.scan_parquet", delta.scan_parquet
        yield "potstill.registry.journal.ThreadPoolExecutor", _InTurn
        yield "potstill.events.wal.log.threading", service.THREADING
        yield "potstill.events.wal.log.atexit", SimpleNamespace(register=_ignore, unregister=_ignore)
        yield "potstill.service.problem_service.AsyncLog", SimulatedLog
        yield "asyncio.to_thread", service.to_thread
        yield "potstill.client.edge.Http", SimulatedHttp
        yield "potstill.pipeline.update.start", actors.start
        yield "potstill.pipeline.update._distil", actors.distil(self)

    def _clock(self, real: Callable[[], Any], simulated: Callable[[Host], Any]) -> Callable[[], Any]:
        def read() -> Any:
            task = self.scheduler.task
            return real() if task is None else simulated(task.process.host)

        return read

    def _entropy(self, size: int) -> bytes:
        return self.random.randbytes(size)

    def _present(self) -> datetime:
        return datetime.fromtimestamp(self.scheduler.process.host.clock() / SECOND, UTC)


class _InTurn:
    """Takes the place of a pool of threads."""

    def __init__(self, _: int) -> None:
        pass

    def __enter__(self) -> _InTurn:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[..., Any], items: Any) -> list[Any]:
        return [function(item) for item in items]


def _ignore(_: object) -> None:
    pass


def _memory() -> str | None:
    """A folder in memory, if there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
