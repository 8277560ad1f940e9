"""A supervisor of child processes: it starts them, restarts those that die, and stops them."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FrameType

#: How often the pause before a restart is doubled at most.
DOUBLINGS = 6
#: Seconds after which a process counts as healthy and its restart pause is reset.
HEALTHY = 10.0
#: Number of deaths before it was ever ready after which a process is not restarted.
ATTEMPTS = 3
#: What a process writes to its ready descriptor.
READY = b"1"


class Child:
    """A process that runs as long as the service does.

    Args:
        name: Name for people.
        module: Module that it runs; see `potstill.service.process.child`.
        arguments: Arguments of the module.
        lifeline: Read end of a pipe whose write end only this process has.
        descriptors: Descriptors that it inherits.
        reports: Whether it gets ``--ready DESCRIPTOR`` as well, and writes `READY` there when it is ready.
        nice: Niceness; higher is a lower priority.
        pause: Seconds before a restart after its first death; doubled after each further one.
        variables: Environment variables, besides those of this process.
    """

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        *,
        lifeline: int,
        descriptors: Sequence[int] = (),
        reports: bool = False,
        nice: int = 0,
        pause: float = 0.1,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._command = [sys.executable, "-m", "potstill.service.process.child", str(nice), module, *arguments]
        self._lifeline, self._descriptors, self._reports = lifeline, tuple(descriptors), reports
        self._environment = {**os.environ, **(variables or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._pause, self._begun, self._due = pause, 0.0, 0.0
        self._deaths = 0
        #: Whether it ever was ready.
        self.was_ready = not reports
        #: The descriptor on which it reports that it is ready; None if no report is awaited.
        self.waiting: int | None = None

    @property
    def pid(self) -> int | None:
        """Process id, if it runs."""
        return self._process.pid if self._process else None

    @property
    def cannot_start(self) -> bool:
        """Whether it died several times and was never ready."""
        return not self.was_ready and self._deaths >= ATTEMPTS

    def start(self) -> None:
        """Start its process."""
        command, descriptors = self._command, self._descriptors
        ready, theirs = os.pipe()
        try:
            if self._reports:
                command, descriptors = [*command, "--ready", str(theirs)], (*descriptors, theirs)
            # Ctrl-C signals the terminal's whole process group, and only the parent should act on it: so each child
            # gets a group of its own.
            self._process = subprocess.Popen(
                command, stdin=self._lifeline, pass_fds=descriptors, env=self._environment, process_group=0
            )
        finally:
            os.close(theirs)
        self._begun, self.waiting = time.monotonic(), ready

    def read_report(self) -> None:
        """Read the report on `waiting`; it is empty if the process died."""
        if self.waiting is not None:
            self.was_ready = os.read(self.waiting, 1) == READY or self.was_ready
            self._close_waiting()

    def reap(self) -> str | None:
        """How its process died, if it died since the last call; it is restarted after a pause."""
        if self._process is None or self._process.poll() is None:
            return None
        code, self._process = self._process.returncode, None
        self._close_waiting()
        self._deaths = 1 if time.monotonic() - self._begun >= HEALTHY else self._deaths + 1
        self._due = time.monotonic() + self._pause * 2 ** min(self._deaths - 1, DOUBLINGS)
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"

    def due_in(self) -> float | None:
        """Seconds until it is to be started; None if it runs."""
        return None if self._process else max(self._due - time.monotonic(), 0.0)

    def send(self, number: signal.Signals) -> None:
        """Send its process a signal, if it runs."""
        if self._process is not None:
            self._process.send_signal(number)

    def _close_waiting(self) -> None:
        if self.waiting is not None:
            os.close(self.waiting)
            self.waiting = None


class Signals:
    """SIGTERM, SIGINT and SIGCHLD, to be waited for together with descriptors."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)

    @contextlib.contextmanager
    def caught(self) -> Iterator[Signals]:
        """Catch the signals within a ``with`` block."""
        numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        before = {number: signal.signal(number, _nothing) for number in numbers}
        wakeup = signal.set_wakeup_fd(self._theirs.fileno(), warn_on_full_buffer=False)
        try:
            yield self
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._ours.close()
            self._theirs.close()

    def wait(self, timeout: float | None, descriptors: Iterable[int] = ()) -> tuple[bool, list[int]]:
        """Wait for a signal or a descriptor: whether a stop was requested, and which descriptors are readable."""
        with selectors.DefaultSelector() as selector:
            for descriptor in (self._ours.fileno(), *descriptors):
                selector.register(descriptor, selectors.EVENT_READ)
            news = [key.fd for key, _ in selector.select(timeout)]
        numbers: set[int] = set()
        with contextlib.suppress(BlockingIOError):
            numbers.update(self._ours.recv(4096))
        return bool(numbers & {signal.SIGTERM, signal.SIGINT}), [fd for fd in news if fd != self._ours.fileno()]


def supervise(
    children: Sequence[Child],
    signals: Signals,
    *,
    on_ready: Callable[[], None],
    on_death: Callable[[Child, str], None],
) -> bool:
    """Keep children running until a stop is requested; False if one of them cannot be started.

    Args:
        children: Children, not started yet.
        signals: Signals, caught.
        on_ready: Called once, when all have been ready.
        on_death: Called with a child that died and how, before it is restarted.
    """
    announced = False
    while not any(child.cannot_start for child in children):
        for child in children:
            if child.due_in() == 0.0:
                child.start()
        pauses = [pause for child in children if (pause := child.due_in()) is not None]
        waiting = {child.waiting: child for child in children if child.waiting is not None}
        asked, news = signals.wait(min(pauses, default=None), waiting)
        if asked:
            return True
        for descriptor in news:
            waiting[descriptor].read_report()
        for child in children:
            if (how := child.reap()) is not None:
                on_death(child, how)
        if not announced and all(child.was_ready for child in children):
            announced = True
            on_ready()
    return False


def stop(children: Sequence[Child], signals: Signals, seconds: float) -> bool:
    """Stop children by SIGTERM, and by SIGKILL after some seconds or at a second stop request.

    Returns:
        Whether there was a second stop request.
    """
    deadline, again = time.monotonic() + seconds, False
    for child in children:
        child.send(signal.SIGTERM)
    while not again and (left := deadline - time.monotonic()) > 0 and _alive(children):
        again, _ = signals.wait(left)
    for child in _alive(children):
        child.send(signal.SIGKILL)
    while _alive(children):
        signals.wait(1.0)
    return again


def _alive(children: Sequence[Child]) -> list[Child]:
    for child in children:
        child.reap()
    return [child for child in children if child.pid is not None]


def _nothing(_signal: int, _frame: FrameType | None) -> None:
    """Nothing to do: the wakeup descriptor reports the signal, which needs a handler to be set."""
