"""Every call of the disk and of the store fails once: nothing acknowledged is lost, and a repetition succeeds."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from unittest import mock

import pytest
from simulation.actors import random_policy
from simulation.host import PLACE, PROBLEM, PROBLEM_TOML, Host
from simulation.options import QUIET
from simulation.oracle import SETTLE
from simulation.scheduler import SECOND, Process
from simulation.service import SimulatedLog, drive
from simulation.world import World

from potstill.client import EdgeClient
from potstill.errors import PotstillError
from potstill.events import Event, LoggedDecision, LoggedReward
from potstill.events.join import join
from potstill.events.wal import Spool, read
from potstill.registry import Registry
from potstill.service.tokens import TokenFile
from potstill.storage import LocalStorage

KINDS = ("ENOSPC", "EIO", "EINTR", "short", "MemoryError")
#: Calls that fail in each run: the one that is due, or it and some after it.
IN_A_ROW = (1, 4)
EVENTS = [
    *(LoggedDecision(id=f"d{i}", context={"returning": True}, action="a", propensity=0.5, policy=0) for i in range(3)),
    LoggedReward(id="d1", reward=1.0, key="k"),
]
_connect = sqlite3.connect


class FailingCalls:
    """Lets calls fail from the one that is due on."""

    def __init__(self, first: int, kind: str, in_a_row: int) -> None:
        self._failing, self._kind = range(first, first + in_a_row), kind
        self._calls = 0
        self.failed = False

    def __call__(self, call: str) -> bool:
        self._calls += 1
        if self._calls not in self._failing:
            return False
        self.failed = True
        if self._kind == "short":
            return True
        if self._kind == "MemoryError":
            raise MemoryError
        number = getattr(errno, self._kind)
        raise OSError(number, os.strerror(number))


class Operation:
    """What is repeated after a call has failed; it keeps what was acknowledged."""

    def __init__(self, world: World, host: Host) -> None:
        self.world, self.host, self.workspace = world, host, host.workspace()
        self.acknowledged: list[Any] = []

    def prepare(self) -> None:
        """Runs before any call fails."""

    def act(self) -> None:
        """May fail, and is then repeated."""
        raise NotImplementedError

    def check(self) -> None:
        """Runs after the process has ended and the power was cut."""
        raise NotImplementedError


class Log(Operation):
    """Append events, and close the log."""

    log: SimulatedLog | None = None

    def act(self) -> None:
        self.log = self.log or SimulatedLog(self.workspace.event_log(), 1.5)
        try:
            for event in EVENTS:
                if event not in self.acknowledged:
                    self.append(self.log, event)
            drive(self.log.close())
        except BaseException:
            if self.log._log._queue.ended:  # as its message says: open another
                self.log = None
            raise

    def append(self, log: SimulatedLog, event: Event) -> None:
        drive(log.submit([event]).wait())
        self.acknowledged.append(event)

    def check(self) -> None:
        spool = Spool(self.host.folder / "spool")
        spool.adopt()
        found = [event.id for writer in spool.writers() for path in spool.closed(writer) for event in read(path).events]
        assert {event.id for event in self.acknowledged} == set(found)


class Rotate(Log):
    """Append events, each to a segment of its own."""

    def append(self, log: SimulatedLog, event: Event) -> None:
        super().append(log, event)
        self.world.scheduler.now += 10 * SECOND  # the segment is old enough
        log.rotate()


class Flush(Log):
    """Flush the log into the lake."""

    def prepare(self) -> None:
        super().act()

    def act(self) -> None:
        report = self.workspace.flusher().flush()
        if report.error is not None:
            raise OSError(report.error)

    def check(self) -> None:
        self.act()
        for table, expected in (("decisions", ["d0", "d1", "d2"]), ("rewards", ["d1"])):
            assert self.workspace.lake.scan(table).collect()["id"].sort().to_list() == expected
        assert not Spool(self.host.folder / "spool").pending().segments


class Join(Flush):
    """Record a cut, and make it."""

    def prepare(self) -> None:
        super().prepare()
        super().act()
        self.world.scheduler.now += 1000 * SECOND

    def act(self) -> None:
        join(
            self.workspace.lake,
            self.workspace.cuts,
            PROBLEM,
            aggregate="sum",
            settle=SETTLE,
            now=self.world.scheduler.now,
        )

    def check(self) -> None:
        rows = self.workspace.lake.scan("observations").collect().sort("id")
        assert rows["id"].to_list() == ["d0", "d1", "d2"]
        assert rows["reward"].to_list() == [-0.5, 1.0, -0.5]


class Publish(Operation):
    """Publish a version in a folder."""

    def registry(self) -> Registry:
        return Registry(LocalStorage(self.host.folder / "registry"), PROBLEM)

    def act(self) -> None:
        registry = self.registry()
        head, version = registry.head(), registry.next_version()
        policy = random_policy(self.workspace, version, 0, version)
        expected = head.number if head else 0
        self.acknowledged.append(registry.publish(policy, teacher=b"state", report=b"{}", expected=expected))

    def check(self) -> None:
        registry = self.registry()
        for entry in self.acknowledged:
            assert entry in registry.entries()
            assert registry.policy(entry.version).version == entry.version
            assert registry.teacher(entry.version) == b"state"
        numbers = [version.version for version in registry.versions()]
        assert numbers == list(range(1, len(numbers) + 1))


class Tokens(Operation):
    """Create tokens in a folder."""

    def tokens(self) -> TokenFile:
        return TokenFile(LocalStorage(self.host.folder))

    def act(self) -> None:
        name = f"token {self.world.random.getrandbits(32)}"
        self.tokens().create(name, ["read"])
        self.acknowledged.append(name)

    def check(self) -> None:
        assert {*self.acknowledged} <= {token.name for token in self.tokens().read() or ()}


class Edge(Operation):
    """Decide and reward on a device; SQLite's own calls fail as its library reports it."""

    def prepare(self) -> None:
        folder = self.host.folder / "edge"
        folder.mkdir()
        (folder / "current.policy").write_bytes(random_policy(self.workspace, 1, 0, 1).to_bytes())

    def act(self) -> None:
        with self.client() as client:
            for name in ("a", "b"):
                client.decide({"returning": True}, id=name)
                self.acknowledged.append(name)
                client.reward(name, 1.0, key="k")
                self.acknowledged.append(name)

    def check(self) -> None:
        with self.client() as client:
            rows = client._queue._database.execute("SELECT kind, id FROM queue").fetchall()
        assert {("decision", name) for name in self.acknowledged} == {row for row in rows if row[0] == "decision"}
        assert sorted(self.acknowledged) <= sorted(name for _, name in rows)

    def client(self) -> EdgeClient:
        return EdgeClient("http://service/v1/simulated", self.host.folder / "edge")


class FailingDatabase(sqlite3.Connection):
    """A database whose statements are calls that can fail."""

    calls: Callable[[str], object] | None = None

    def execute(self, *arguments: Any) -> Any:
        if self.calls is not None:
            try:
                type(self).calls("execute")  # type: ignore[misc]
            except OSError as error:
                raise sqlite3.OperationalError("database or disk is full") from error
        return super().execute(*arguments)


@contextlib.contextmanager
def failing(world: World, calls: FailingCalls) -> Iterator[None]:
    """Let calls of the disk, of the store and of SQLite fail within this context."""
    world.disks.fault = world.store.fault = calls
    with (
        mock.patch.object(FailingDatabase, "calls", staticmethod(calls)),
        mock.patch("sqlite3.connect", lambda *some, **more: _connect(*some, factory=FailingDatabase, **more)),
    ):
        yield
    world.disks.fault = world.store.fault = None


def attempt(kind: type[Operation], calls: FailingCalls) -> None:
    """Run an operation with failing calls, repeat it without, cut the power, and check what is left."""
    world = World(0, QUIET)
    world.scheduler.calm = True
    world.store.files[f"{PLACE}/problem.toml"] = PROBLEM_TOML.encode()
    with world.installed():
        host = Host(world, "host")
        operation = kind(world, host)

        def act() -> None:
            with contextlib.suppress(OSError, MemoryError, PotstillError, sqlite3.Error), failing(world, calls):
                operation.act()
            world.disks.fault = world.store.fault = None
            if calls.failed:
                operation.act()

        process = Process(host, "host/process")
        world.run_alone(host, operation.prepare, process)
        world.run_alone(host, act, process)
        world.disks.release(process)
        if kind is not Edge:  # of SQLite's files it is not known what is synced
            world.disks.cut_power("host")
        world.run_alone(host, operation.check)


@pytest.mark.parametrize("in_a_row", IN_A_ROW)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operation", [Log, Rotate, Flush, Join, Publish, Tokens, Edge])
def test_a_failing_call_loses_nothing(operation: type[Operation], kind: str, in_a_row: int) -> None:
    for first in count(1):
        calls = FailingCalls(first, kind, in_a_row)
        attempt(operation, calls)
        if not calls.failed:
            assert first > 5
            return
