"""A simulated world: hosts with workers, flushers and updaters, clients and devices, one store; and what befalls them.

The whole run, faults included, follows from its seed and its options.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

from simulation.actors import Client, Device, FlusherActor, Operator, Updater, repair
from simulation.disk import Disks
from simulation.faults import DAY, Faults
from simulation.host import PLACE, PROBLEM_TOML, Host
from simulation.options import Options
from simulation.oracle import SETTLE, WINDOW, Oracle
from simulation.replacements import installed
from simulation.scheduler import MILLISECOND, SECOND, Process, Scheduler
from simulation.service import Network, Worker
from simulation.store import Store

from potstill.clock import CLOCK
from potstill.events.watermarks import ImplausibleClock
from potstill.service.process.flusher import WorkspaceFlusher


class Outcome(NamedTuple):
    """Result of a world: contradictions to the invariant, and a hash of everything that happened."""

    violations: list[str]
    digest: str
    lines: list[str]
    steps: int


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

    def run(self) -> Outcome:
        """Run the world to its end, let it recover, and check it."""
        with self.installed():
            self._begin()
            self.scheduler.run(lambda: self._lives == 0 and self._faults.over)
            self._recover()
            violations = self.oracle.violations(self._hosts[0].workspace())
        return Outcome(violations, self.scheduler.digest, self.scheduler.lines or [], self.scheduler.steps)

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Let the code under test run in this world; in the end nothing of it is left, also after an error.

        Tasks that were left would end when they are collected, and close descriptors that are others' by then.
        """
        try:
            with installed(self):
                try:
                    yield
                finally:
                    for process in self.scheduler.processes:
                        self.scheduler.kill(process)
                        self.disks.release(process)
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

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
                host.programs[f"worker{number}"] = self._worker
            host.programs["flusher"] = lambda process: FlusherActor(self, process.host).run()
            host.programs["updater"] = lambda process: Updater(self, process.host).run()
        operator = Operator(self, self._hosts[0])
        self._hosts[0].programs["operator"] = lambda _: operator.run()
        device = Device(self, edge, "device")
        self._lives += 1
        edge.programs["edge"] = lambda _: self._live(device.run)
        for host in [*self._hosts, edge]:
            for name in host.programs:
                self.start(host, name, self.random.randint(0, 5_000) * MILLISECOND)
        process = Process(outside, "clients")
        for number in range(options.decisions):
            self._lives += 1
            client, delay = Client(self, outside, "client"), self.random.randint(0, options.seconds) * SECOND
            self.scheduler.spawn(process, lambda n=number, c=client: self._live(lambda: c.live(n)), delay)
        self._faults = Faults(self, self._hosts, edge)
        self._faults.begin()

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

    def start(self, host: Host, name: str, delay: int) -> None:
        """Start a program of a host."""
        process, program = Process(host, f"{host.name}/{name}"), host.programs[name]
        host.processes.append(process)

        def run() -> None:
            CLOCK.now()  # a process takes the machine's clock when it starts
            program(process)

        self.scheduler.spawn(process, run, delay)

    def end(self, process: Process) -> None:
        """Kill a process of a host."""
        self.scheduler.kill(process)
        self.disks.release(process)
        process.host.processes.remove(process)

    def _recover(self) -> None:
        """Stop the workers in good order, let all logs drain, and update until nothing is pending."""
        for host in self._hosts:
            for process in [one for one in host.processes if one.name.endswith(("updater", "operator"))]:
                self.end(process)
        for worker in self.network.workers:
            worker.stopping = True
        paused = max(process.paused_until for host in self._hosts for process in host.processes)
        ends = max(self.scheduler.now, paused) + (WINDOW + SETTLE + 120) * SECOND
        self.scheduler.at(ends - self.scheduler.now, lambda: None)
        self.scheduler.run(lambda: self.scheduler.now >= ends)
        for host in self._hosts:
            for process in list(host.processes):
                self.end(process)
        # The end is later than any clock was ahead.
        self.scheduler.now += (3 if self.options.clock_jumps else 0) * DAY * SECOND
        if self.options.deletions:
            self.run_alone(self._hosts[0], lambda: repair(self._hosts[0].workspace().registry))
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


def _memory() -> str | None:
    """A folder in memory, if there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
