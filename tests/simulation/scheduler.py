"""One seeded scheduler for all tasks of a simulated world: only one runs, and it runs until its next I/O call.

Time is virtual and in microseconds. Every I/O call takes a random time, so that the order in which tasks continue is
random, and the seed determines it.
"""

from __future__ import annotations

import hashlib
import heapq
import random
from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet

MILLISECOND, SECOND = 1_000, 1_000_000
#: When worlds begin: shortly before midnight, so that they straddle two days.
BEGIN = 1_700_006_400 * SECOND - 200 * SECOND
#: Steps after which a world counts as hanging.
MOST_STEPS = 400_000


class Killed(BaseException):
    """The process of the current task was killed: nothing that it does from now on has an effect."""


class Process:
    """A process of a simulated host.

    Attributes:
        host: The host.
        name: Name in the trace.
        alive: False once it was killed or has ended.
        tasks: Its running tasks.
        descriptors: Files that it has open.
    """

    def __init__(self, host: Any, name: str) -> None:
        self.host, self.name, self.alive = host, name, True
        self.tasks: list[Task] = []
        self.descriptors: set[int] = set()
        self.paused_until = 0
        self.clock: dict[str, Any] = {}  # state of its `potstill.clock.Clock`


class Task(greenlet):
    """A thread of a process."""

    def __init__(self, process: Process, function: Callable[[], Any], hub: greenlet) -> None:
        super().__init__(self._main, hub)
        self.process, self._function = process, function
        self.ticket = 0
        process.tasks.append(self)

    def _main(self) -> None:
        try:
            self._function()
        except Killed:
            pass
        finally:
            self.process.tasks.remove(self)


class Signal:
    """An event that tasks wait for."""

    def __init__(self) -> None:
        self.done = False
        self.value: Any = None
        self.waiting: list[Task] = []


class Scheduler:
    """Runs tasks one at a time.

    Args:
        seed: Determines everything.
        keep: Whether to keep the lines of the trace, and not only their hash.

    Attributes:
        random: The only source of randomness.
        processes: All processes that had a task, in order; a dictionary without values.
        now: The true time.
    """

    def __init__(self, seed: int, *, keep: bool = False) -> None:
        self.random = random.Random(seed)
        self.now = BEGIN
        self.steps = 0
        self.calm = False  # no long delays: the world recovers
        self.lines: list[str] | None = [] if keep else None
        self._hash = hashlib.sha256()
        self._hub = getcurrent()
        self._queue: list[tuple[int, int, Task | None, int, Callable[[], None] | None]] = []
        self._order = 0
        self.processes: dict[Process, None] = {}

    @property
    def digest(self) -> str:
        """Hash of the trace so far."""
        return self._hash.hexdigest()

    def trace(self, line: str) -> None:
        """Note what happened."""
        task = self.task
        line = f"{self.now - BEGIN} {task.process.name if task else '-'} {line}"
        self._hash.update(line.encode() + b"\n")
        if self.lines is not None:
            self.lines.append(line)

    @property
    def task(self) -> Task | None:
        """The running task; None in the scheduler itself, and in other threads."""
        found = getcurrent()
        return found if type(found) is Task else None

    @property
    def process(self) -> Process:
        """The process of the running task."""
        assert self.task is not None
        return self.task.process

    def spawn(self, process: Process, function: Callable[[], Any], delay: int = 0) -> None:
        """Start a task."""
        self.processes[process] = None
        self._push(self.now + delay, Task(process, function, self._hub), 0, None)

    def at(self, delay: int, callback: Callable[[], None]) -> None:
        """Call a function later, outside of all tasks."""
        self._push(self.now + delay, None, 0, callback)

    def sleep(self, delay: int) -> None:
        """Let others run for a while; `Killed` if the process is killed meanwhile."""
        task = self.task
        assert task is not None
        self._check(task)
        self._push(self.now + delay, task, task.ticket, None)
        self._hub.switch()
        self._check(task)

    def wait(self, signal: Signal, delay: int) -> bool:
        """Wait for a signal, at most so long; whether it came."""
        task = self.task
        assert task is not None
        self._check(task)
        if not signal.done:
            signal.waiting.append(task)
            self._push(self.now + delay, task, task.ticket, None)
            self._hub.switch()
            self._check(task)
        return signal.done

    def set(self, signal: Signal, value: Any = None) -> None:
        """Give a signal."""
        signal.done, signal.value = True, value
        for task in signal.waiting:
            if not task.dead:
                self._push(self.now, task, task.ticket, None)
        signal.waiting.clear()

    def point(self, line: str) -> None:
        """An I/O call that is about to have its effect: it takes a while."""
        self.trace(line)
        self.sleep(self._latency())

    def answered(self) -> None:
        """An I/O call that has had its effect; its caller does not know yet."""
        if self.random.random() < 0.3:
            self.sleep(self._latency())

    def kill(self, process: Process) -> None:
        """End a process; not for its own tasks."""
        process.alive = False
        for task in list(process.tasks):
            if task:  # it has begun
                task.throw(Killed)
            else:
                process.tasks.remove(task)
        assert not any(process.tasks), f"{process.name} goes on after it was killed"

    def run(self, until: Callable[[], bool]) -> None:
        """Run until a condition holds, or nothing is left to do."""
        while self._queue and not until():
            time, _, task, ticket, callback = heapq.heappop(self._queue)
            if callback is not None:
                self.now = max(self.now, time)
                callback()
            elif task is not None and task.ticket == ticket and task.process.alive and not task.dead:
                if task.process.paused_until > time:
                    self._push(task.process.paused_until, task, ticket, None)
                    continue
                self.now = max(self.now, time)
                task.ticket += 1
                self.steps += 1
                task.switch()
                if self.steps > MOST_STEPS:
                    raise AssertionError(f"the world does not end: {self.steps} steps")

    def _check(self, task: Task) -> None:
        if not task.process.alive:
            raise Killed

    def _push(self, time: int, task: Task | None, ticket: int, callback: Callable[[], None] | None) -> None:
        self._order += 1
        heapq.heappush(self._queue, (time, self._order, task, ticket, callback))

    def _latency(self) -> int:
        """Mostly a millisecond, sometimes a minute."""
        draw, size = self.random.random(), self.random.random()
        if self.calm or draw < 0.80:
            return int(size * 2 * MILLISECOND) + 1
        if draw < 0.97:
            return int(size * 50 * MILLISECOND)
        return int(size * 2 * SECOND) if draw < 0.997 else int(size * 60 * SECOND)
