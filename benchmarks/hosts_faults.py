"""The hosts of `benchmarks/hosts.py`, and what happens to them: partitions, pauses, kills and a clock that is set."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hosts_clients import PORT
from hosts_network import Network, command_in, run_in
from soak_samples import processes

#: Source of the preloaded clock.
CLOCK = Path(__file__).with_name("hosts_clock.c")
DAYS = 2 * 86_400
POTSTILL = (sys.executable, "-m", "potstill.cli")


class Host:
    """A machine with a service and an updater, a state folder and a clock of its own.

    Args:
        name: Its name, as in the network.
        folder: Folder for its state.
        workspace: Address of the workspace.
        skew: Seconds that its clock is ahead.
        variables: Environment variables that reach the store.
    """

    def __init__(self, name: str, folder: Path, workspace: str, skew: int, variables: dict[str, str]) -> None:
        self.name, self.skew, self._workspace = name, skew, workspace
        self._clock, self._output = folder / "clock", folder / "output"
        folder.mkdir()
        self.set_clock(0)
        library = folder / "clock.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(CLOCK)], check=True)
        self.environment = {
            **os.environ,
            **variables,
            "XDG_STATE_HOME": str(folder / "state"),
            "LD_PRELOAD": str(library),
            "POTSTILL_CLOCK": str(self._clock),
        }
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def printed(self) -> str:
        """What its service and updater have printed."""
        return self._output.read_text()

    def set_clock(self, step: int) -> None:
        """Set its clock some seconds ahead, besides its skew."""
        with self._clock.open("r+b" if self._clock.exists() else "wb") as file:  # in place: it is mapped
            file.write((self.skew + step).to_bytes(8, sys.byteorder, signed=True))

    def start(self) -> None:
        """Start the service, with an updater."""
        stated = ["--port", str(PORT), "--workers", "2", "--update-every", "10s"]
        command = command_in(self.name, *POTSTILL, "serve", self._workspace, *stated)
        with self._output.open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=self.environment)

    def revive(self) -> None:
        """Start the service again if it has ended; one cannot start while the store is out of reach."""
        if self.process is None or self.process.poll() is not None:
            self.start()

    def roles(self) -> dict[int, str]:
        """Its processes."""
        return {} if self.process is None or self.process.poll() is not None else processes(self.process.pid)

    def signal(self, role: str, number: int, rng: random.Random) -> list[int]:
        """Send a signal to one process of a role, or to all (`host`); returns the processes."""
        roles = self.roles()
        chosen = [pid for pid, found in sorted(roles.items()) if role in (found, "host")]
        chosen = chosen if role == "host" or not chosen else [rng.choice(chosen)]
        for pid in chosen:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return chosen

    def stop(self) -> int | None:
        """Stop the service in order; returns its exit code."""
        if self.process is None:
            return None
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def kill(self) -> None:
        """Kill all processes."""
        self.signal("host", signal.SIGKILL, random.Random(0))
        if self.process is not None:
            self.process.wait()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Potstill here."""
        command = command_in(self.name, *POTSTILL, *arguments)
        return subprocess.run(command, capture_output=True, text=True, env=self.environment, timeout=300)


class Faults:
    """Faults at random, from a seed, one after the other; some overlap on the two hosts."""

    def __init__(self, network: Network, hosts: list[Host], seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self.set: set[str] = set()  # hosts whose clock was set
        self._network, self._hosts, self._random = network, hosts, random.Random(seed)
        self._undo: list[tuple[float, Callable[[], None]]] = []
        self._wrong_clock: Host | None = None

    def run(self, seconds: float) -> None:
        """Cause faults for some time, then heal everything."""
        end, due = time.monotonic() + seconds, time.monotonic() + 15
        steps = [time.monotonic() + seconds * share for share in (0.3, 0.65)]  # of the last host's clock
        while time.monotonic() < end:
            if steps and time.monotonic() >= steps[0]:
                steps.pop(0)
                self._set_clock(self._hosts[-1])
            if time.monotonic() >= due:
                self._fault(self._random.choice(self._hosts))
                due = time.monotonic() + self._random.uniform(3, 13)
            self._heal(time.monotonic())
            time.sleep(0.2)
        self._heal(float("inf"))

    def _fault(self, host: Host) -> None:
        rng = self._random
        # While a clock is wrong, its host keeps its link and its updater, which is to say so.
        mild = host is self._wrong_clock
        kind = "kill" if mild else rng.choice(("partition", "flapping link", "pause", "pause", "kill", "kill", "host"))
        if kind == "partition":
            self._network.cut(host.name)
            self._later(rng.choice((3, 8, 20, 45)), lambda: self._network.heal(host.name))
        elif kind == "flapping link":
            for place in range(6):
                self._later(place * 1.5, lambda: self._network.cut(host.name))
                self._later(place * 1.5 + rng.uniform(0.2, 1.2), lambda: self._network.heal(host.name))
        elif kind == "pause":
            role = rng.choice(("worker", "flusher", "flusher", "updater"))
            kind = f"pause of {role}"
            for pid in host.signal(role, signal.SIGSTOP, rng):
                self._later(rng.choice((1, 4, 12, 35)), lambda pid=pid: _continue(pid))
        elif kind == "kill":
            role = rng.choice(("worker", "flusher") if mild else ("worker", "flusher", "updater"))
            kind = f"kill -9 of {role}"
            host.signal(role, signal.SIGKILL, rng)
        else:
            kind = "kill -9 of all of a host"
            host.kill()
            self._later(rng.uniform(0.5, 6), host.revive)
        self.counts[kind] += 1

    def _set_clock(self, host: Host) -> None:
        host.set_clock(DAYS)
        self._wrong_clock = host
        self.set.add(host.name)
        self.counts["clock set two days ahead"] += 1
        self._later(80, lambda: self._right_clock(host))

    def _right_clock(self, host: Host) -> None:
        host.set_clock(0)
        self._wrong_clock = None

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._undo.append((time.monotonic() + seconds, action))

    def _heal(self, until: float) -> None:
        """Do what is due; at the end, everything."""
        self._undo.sort(key=lambda one: one[0])
        while self._undo and self._undo[0][0] <= until:
            self._undo.pop(0)[1]()
        for host in self._hosts:
            if host.process is not None and host.process.poll() is not None and not self._is_down(host):
                host.revive()

    def _is_down(self, host: Host) -> bool:
        return any(action == host.revive for _, action in self._undo)


@contextmanager
def store(network: Network, folder: Path) -> Iterator[dict[str, str]]:
    """An S3-compatible store in its namespace; yields the variables of its clients. Its bucket is `bucket`."""
    address, python = f"http://{network.store_address}:9000", sys.executable
    with (folder / "store").open("wb") as output:
        command = command_in("store", python, "-m", "moto.server", "-H", network.store_address, "-p", "9000")
        environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    create = f"import urllib.request as u; u.urlopen(u.Request('{address}/bucket', method='PUT')).close()"
    try:
        for attempt in range(100):
            try:
                run_in("store", python, "-c", create)
                break
            except subprocess.CalledProcessError:
                if attempt == 99:
                    raise
                time.sleep(0.3)
        yield {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }
    finally:
        process.terminate()
        process.wait()


def _continue(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
