"""What the code under test sees of a simulated world: its clocks, its entropy, its store and its network."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock
from weakref import WeakSet

from simulation import actors, delta, service
from simulation.scheduler import SECOND, Process, Scheduler
from simulation.store import SimulatedStorage, Store

from potstill.clock import Clock, wall
from potstill.events import reward_keys

if TYPE_CHECKING:
    from simulation.world import World


@contextlib.contextmanager
def installed(world: World) -> Iterator[None]:
    """Let the code under test run in a world within this context."""
    Store.current = world.store
    service.SimulatedLog.scheduler, service.SimulatedHttp.network = world.scheduler, world.network
    with contextlib.ExitStack() as stack, world.disks.installed():
        for target, value in [*_of_time(world.scheduler), *_of_storage(), *_of_service(), *_of_update(world)]:
            stack.enter_context(mock.patch(target, value))
        for name in ("_base", "_followed", "_uptime"):
            state = _state_of_process(world.scheduler, name)
            stack.enter_context(mock.patch.object(Clock, name, state, create=True))
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)
        yield


def _of_time(scheduler: Scheduler) -> Iterator[tuple[str, Any]]:
    """Clocks and entropy. Outside of tasks the real ones stay."""

    def clock(real: Callable[[], Any], simulated: Callable[[Any], Any]) -> Callable[[], Any]:
        return lambda: real() if scheduler.task is None else simulated(scheduler.process.host)

    yield "time.time_ns", clock(time.time_ns, lambda host: host.clock() * 1000)
    yield "time.time", clock(time.time, lambda host: host.clock() / SECOND)
    yield "time.monotonic", clock(time.monotonic, lambda _: scheduler.now / SECOND)
    yield "time.monotonic_ns", clock(time.monotonic_ns, lambda _: scheduler.now * 1000)
    for module in ("clock", "client.device_clock"):
        yield f"potstill.{module}.since_boot", clock(lambda: None, lambda host: scheduler.now - host.booted)
        yield f"potstill.{module}.boot_id", clock(str, lambda host: host.boot_id)
    yield "socket.gethostname", clock(str, lambda host: host.name)
    for module in ("wire", "edge"):
        yield f"potstill.client.{module}.now", lambda: datetime.fromtimestamp(scheduler.process.host.clock() / 1e6, UTC)
    yield "potstill.events.reward_keys._keys", _KeysOfProcess(scheduler)
    for name in ("os.urandom", "random._urandom"):
        yield name, scheduler.random.randbytes


def _of_storage() -> Iterator[tuple[str, Any]]:
    yield "potstill.storage.ObjectStorage", SimulatedStorage
    yield "potstill.events.lake.table.DeltaTable", delta.SimulatedTable
    yield "potstill.events.lake.delta.DeltaTable", delta.SimulatedTable
    yield "polars.scan_parquet", delta.scan_parquet
    yield "polars.LazyFrame.collect", delta.collect
    yield "potstill.registry.journal.ThreadPoolExecutor", _InTurn


def _of_service() -> Iterator[tuple[str, Any]]:
    yield "potstill.events.wal.log.threading", service.THREADING
    yield "potstill.events.wal.log._logs", WeakSet()  # a child forked from the real process is none of a simulated one
    yield "potstill.events.wal.log.atexit", SimpleNamespace(register=_ignore, unregister=_ignore)
    yield "potstill.service.problem_service.AsyncLog", service.SimulatedLog
    yield "asyncio.to_thread", service.to_thread
    yield "potstill.client.edge.Http", service.SimulatedHttp


def _of_update(world: World) -> Iterator[tuple[str, Any]]:
    """All of an update but the teacher and the student."""
    yield "potstill.pipeline.update.start", actors.start
    yield "potstill.pipeline.update._distil", actors.distil(world)


def _state_of_process(scheduler: Scheduler, name: str) -> property:
    """An attribute of the clock of events that each simulated process has for itself."""
    outside: dict[str, Any] = {}

    def state(clock: Clock) -> dict[str, Any]:
        if scheduler.task is None:
            return clock.__dict__
        found = scheduler.process.clock
        if not found:
            found["_uptime"] = None
            clock._set(wall())
        return found

    def write(clock: Clock, value: Any) -> None:
        own = outside if scheduler.task is None else scheduler.process.clock
        (clock.__dict__ if own is outside else own)[name] = value

    return property(lambda clock: state(clock)[name], write)


class _KeysOfProcess:
    """Generated keys of rewards: each process has its own."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._keys = scheduler, dict[Process, Iterator[str]]()

    def __next__(self) -> str:
        process = self._scheduler.process
        if process not in self._keys:
            self._keys[process] = reward_keys._new_keys()
        return next(self._keys[process])


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
