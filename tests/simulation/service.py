"""The service in a simulated world: workers that run the real endpoints, and the network before them.

Left out are the HTTP server, tokens, and the threads of the event log: a task that waits for a commit makes it, with
the log's own code, and tasks that come meanwhile share the next group.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine, Iterable, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from simulation.scheduler import MILLISECOND, SECOND, Process, Scheduler, Signal

from potstill.client.sansio import NoReply, Outcome, Reply, Send
from potstill.clock import now
from potstill.events import Commit, DecisionBlock, Event, EventLog, LogUnavailable, Row
from potstill.service.endpoints import ProblemEndpoints
from potstill.service.http import Refusal, refused
from potstill.service.limits import Options
from potstill.service.metrics import NullRecorder
from potstill.service.problem_service import ProblemService
from potstill.workspace import Workspace

if TYPE_CHECKING:
    from simulation.world import World

T = TypeVar("T")
#: Seconds that a worker waits for the disk.
LOG_TIMEOUT = 1.5


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing but simulated I/O."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    raise AssertionError(f"{coroutine!r} waits for an event loop")


async def to_thread(function: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Takes the place of `asyncio.to_thread`."""
    return function(*arguments, **options)


class CommitThread:
    """Takes the place of the event log's commit thread: `SimulatedLog` does its work, and `join` the rest."""

    def __init__(self, target: Callable[[], None], **_: Any) -> None:
        self._target = target

    def start(self) -> None:
        """Nothing to do."""

    def join(self) -> None:
        """Run to the end; the log is closing."""
        self._target()


#: Takes the place of the module `threading` in `potstill.events.wal.log`.
THREADING = SimpleNamespace(Thread=CommitThread, current_thread=threading.current_thread)


class SimulatedCommit:
    """Takes the place of `AsyncCommit`."""

    def __init__(self, log: SimulatedLog, commit: Commit) -> None:
        self._log, self.commit = log, commit
        self.error: LogUnavailable | None = None
        self.done = False

    async def wait(self) -> None:
        """Return when the events are on disk."""
        if not self.done:
            self._log.finish(self)
        if self.error is not None:
            raise LogUnavailable(*self.error.args)


class SimulatedLog:
    """Takes the place of `AsyncLog`: the event log of a worker, whose tasks commit."""

    #: Scheduler of the world that runs now.
    scheduler: Scheduler

    def __init__(self, log: EventLog, timeout: float) -> None:
        self._log, self._timeout = log, int(timeout * SECOND)
        self._commits: dict[Commit, SimulatedCommit] = {}
        self._writing: Signal | None = None
        self.fault: LogUnavailable | None = None

    def submit(self, events: Sequence[Event]) -> SimulatedCommit:
        """Submit events."""
        return self._known(self._log.submit(*events))

    def submit_rows(self, rows: Iterable[Row | DecisionBlock]) -> SimulatedCommit:
        """Submit rows."""
        return self._known(self._log.submit_rows(rows))

    async def close(self) -> None:
        """Close the log."""
        self._log.close()

    def finish(self, waiting: SimulatedCommit) -> None:
        """Commit groups until one is on disk, or it took too long."""
        deadline = self.scheduler.now + self._timeout
        while not waiting.commit.done:
            if self._writing is not None:
                self.scheduler.wait(self._writing, max(deadline - self.scheduler.now, 1))
                if self.scheduler.now >= deadline and not waiting.commit.done:
                    break
            else:
                self._write()
        late = not waiting.commit.done or self.scheduler.now > deadline
        if not waiting.done:
            waiting.done = True
            waiting.error = LogUnavailable("not on disk in time") if late else waiting.commit.error
            self.fault = waiting.error
        self._commits.pop(waiting.commit, None)

    def rotate(self) -> None:
        """Close a segment that is large or old enough: what the commit thread does on a timeout."""
        if self._writing is None and self._log._segments.due:
            self._write()

    def _write(self) -> None:
        self._writing = Signal()
        try:
            self._log._commit(self._log._queue.take(0))
        except Exception as error:
            raise AssertionError("the commit thread of a log would end") from error
        finally:
            done, self._writing = self._writing, None
            self.scheduler.set(done)

    def _known(self, commit: Commit) -> SimulatedCommit:
        return self._commits.setdefault(commit, SimulatedCommit(self, commit))


class Worker:
    """A worker of the service on a host: runs until its process is killed or told to stop."""

    def __init__(self, world: World, process: Process, workspace: Workspace) -> None:
        self._world, self.process = world, process
        self._service = ProblemService(workspace, NullRecorder(), log_timeout=LOG_TIMEOUT, idempotency_size=1000)
        self._endpoints = ProblemEndpoints(self._service, Options())
        self.ready, self.stopping, self.requests = False, False, 0

    def start(self) -> None:
        """Load the policy and open the log; OSError if that is not possible now."""
        drive(self._service.open())
        self.ready = True

    def run(self) -> None:
        """Look for new versions until it is told to stop."""
        scheduler = self._world.scheduler
        while not self.stopping:
            scheduler.sleep(scheduler.random.randint(1_000, 40_000) * MILLISECOND)
            drive(self._service.reload())
            log = self._service._log
            assert isinstance(log, SimulatedLog)
            log.rotate()
        self.ready = False
        while self.requests:
            scheduler.sleep(SECOND)
        drive(self._service.close())

    def answer(self, step: Send, reply: Signal) -> None:
        """Answer a request; runs in a task of this worker."""
        self.requests += 1
        try:
            found = self._answer(step)
        finally:
            self.requests -= 1
        if 200 <= found.status < 300:
            self._world.oracle.logged(step.request, now())
        headers = {name.decode(): value.decode() for name, value in found.headers}
        self._world.scheduler.set(reply, Reply(found.status, headers, found.body))

    def _answer(self, step: Send) -> Any:
        request = step.request
        endpoint = getattr(self._endpoints, request.path.replace("/", "_"))
        headers = [(name.encode(), value.encode()) for name, value in request.headers.items()]
        try:
            return drive(endpoint(request.body or b"", headers))
        except Refusal as refusal:
            return refused(refusal)


class Network:
    """Between clients and workers: it delays, drops, duplicates and reorders requests, and loses replies."""

    def __init__(self, world: World) -> None:
        self._world, self.workers = world, list[Worker]()
        self.faulty = 0.0  # probability of each fault

    def send_once(self, step: Send) -> Outcome:
        """Send a request that the network does not duplicate."""
        return self.send(step, duplicate=False)

    def send(self, step: Send, *, duplicate: bool = True) -> Outcome:
        """Send a request to some worker; for a client's task."""
        scheduler, random = self._world.scheduler, self._world.scheduler.random
        deadline = scheduler.now + max(int(step.seconds * SECOND), 1)
        scheduler.point(f"send {step.request.path}")
        ready = [worker for worker in self.workers if worker.ready and worker.process.alive]
        if not ready:
            scheduler.sleep(SECOND)
            return NoReply("no worker")
        worker, reply = random.choice(ready), Signal()
        if not self._fails():
            scheduler.spawn(worker.process, lambda: worker.answer(step, reply))
        if duplicate and self._fails():
            late, other = random.choice(ready), random.randint(1, 30_000) * MILLISECOND
            scheduler.spawn(late.process, lambda: late.answer(step, Signal()) if late.ready else None, other)
        came = scheduler.wait(reply, max(deadline - scheduler.now, 1))
        if not came or self._fails():
            return NoReply("no reply in time")
        scheduler.trace(f"reply {reply.value.status}")
        return reply.value  # type: ignore[no-any-return]

    def _fails(self) -> bool:
        return self.faulty > 0 and self._world.scheduler.random.random() < self.faulty


class SimulatedHttp:
    """Takes the place of `potstill.client.http.Http`."""

    #: Network of the world that runs now.
    network: Network

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url

    def send(self, step: Send) -> Outcome:
        """Send one request."""
        return self.network.send(step)

    def close(self) -> None:
        """Nothing to do."""
