"""A simulated world: hosts with workers, flushers and updaters, clients and devices, one store; and what befalls them.

The whole run, faults included, follows from its seed and its options.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import NamedTuple

from simulation.actors import Client, Device, FlusherActor, Operator, Updater
from simulation.disk import Disks
from simulation.oracle import DEFAULT, SETTLE, WINDOW, Oracle
from simulation.replacements import installed
from simulation.scheduler import MILLISECOND, SECOND, Process, Scheduler
from simulation.service import Network, Worker
from simulation.store import ROOT, Store

import potstill as ps
from potstill.events.watermarks import ImplausibleClock
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
        clock_jumps: The clock of a host is two days ahead or behind for a while.
        wrong_dates: Replies are dated by the machine's clock, also while that is wrong, and not by the log's.
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
    wrong_dates: bool = True
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
        self.skew, self.boots, self.booted = 0, 0, world.scheduler.now - random_uptime(world)
        self.programs: list[tuple[str, Callable[[Process], None]]] = []
        self.processes: list[Process] = []

    def clock(self) -> int:
        """Microseconds since 1970 by the clock of this host."""
        return self._world.scheduler.now + self.skew

    @property
    def boot_id(self) -> str:
        """Id of its present boot."""
        return f"{self.name}-{self.boots}"

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
        self.oracle = Oracle(self.scheduler, strict=self._strict)
        self.store = Store(self.scheduler, self.oracle.stored)
        self.network = Network(self)
        self.folder = Path(tempfile.mkdtemp(prefix="simulation-", dir=_memory()))
        self.disks = Disks(self.scheduler, self.folder)
        self._lives = 0
        self._faults = False

    def run(self) -> Outcome:
        """Run the world to its end, let it recover, and check it."""
        try:
            with installed(self):
                self._begin()
                self.scheduler.run(lambda: self._lives == 0 and not self._faults)
                self._recover()
                violations = self.oracle.violations(self._hosts[0].workspace())
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)
        return Outcome(violations, self.scheduler.digest, self.scheduler.lines or [], self.scheduler.steps)

    @property
    def _strict(self) -> bool:
        """Whether each process runs from the beginning to the end, so that it can tell how its clock was set."""
        return not (self.options.kills or self.options.power_cuts or self.options.delays)

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
        """Run a worker; one that cannot start is started again."""
        while True:
            worker = Worker(self, process, process.host.workspace())
            try:
                worker.start()
                break
            except OSError:
                self.scheduler.sleep(self.random.randint(1, 10) * SECOND)
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
        options, random, everywhere = self.options, self.random, [*self._hosts, edge]
        chosen = [
            act
            for wanted, act in (
                (options.kills, lambda: self._kill(random.choice(everywhere))),
                (options.power_cuts, lambda: self._cut_power(random.choice(self._hosts))),
                (options.outages, lambda: self._outage(random.choice(self._hosts))),
                (options.pauses, lambda: self._pause(random.choice(self._hosts))),
                (
                    options.clock_jumps and random.random() < 0.3,
                    lambda: self._jump(random.choice([*self._hosts, edge])),
                ),
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
        host.boots, host.booted = host.boots + 1, self.scheduler.now + delay
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
        jump = self.random.choice((-2, 2)) * DAY * SECOND
        host.skew += jump

        def put_right() -> None:
            host.skew -= jump

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
        paused = max(process.paused_until for host in self._hosts for process in host.processes)
        ends = max(self.scheduler.now, paused) + (WINDOW + SETTLE + 120) * SECOND
        self.scheduler.at(ends - self.scheduler.now, lambda: None)
        self.scheduler.run(lambda: self.scheduler.now >= ends)
        for host in self._hosts:
            for process in list(host.processes):
                self._end(process)
        # The end is later than any clock was ahead.
        self.scheduler.now += (3 if self.options.clock_jumps else 0) * DAY * SECOND
        for host in self._hosts:
            self.run_alone(host, self._drain)
        self.run_alone(self._hosts[0], self._settle)

    def _drain(self) -> None:
        flusher = WorkspaceFlusher(self.scheduler.process.host.workspace())
        for _ in range(2):
            flusher.flush(wait=True)

    def _settle(self) -> None:
        host = self.scheduler.process.host
        updater = Updater(self, host)
        for _ in range(10):
            try:
                report = updater.update(host.workspace())
            except ImplausibleClock:  # the clock was wrong when the log was opened, and is right now
                assert self.options.clock_jumps
                report = updater.update(host.workspace(), trust_clock=True)
            assert report is not None, "an update fails in a world that has recovered"
            assert report.joined is not None
            if not report.joined.decisions and not report.joined.pending:
                return
        raise AssertionError(f"decisions are still pending: {report.joined}")

    def run_alone(self, host: Host, function: Callable[[], None], process: Process | None = None) -> None:
        """Run a process of a host to its end while nothing else runs."""
        done: Future[None] = Future()

        def act() -> None:
            function()
            done.set_result(None)

        self.scheduler.spawn(process or Process(host, f"{host.name}/last"), act)
        self.scheduler.run(done.done)


def random_uptime(world: World) -> int:
    """How long a host has been running when its world begins."""
    return world.random.randint(1, 1000) * SECOND


def _memory() -> str | None:
    """A folder in memory, if there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
