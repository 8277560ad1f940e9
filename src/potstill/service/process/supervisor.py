"""Processes that a service keeps running: started, watched, started again when they die, and stopped."""

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

#: The pause before a process that died is started again is doubled so many times at most.
DOUBLINGS = 6
#: A process that has lived so many seconds is well, and its deaths before are forgotten.
WELL = 10.0
#: Deaths before it was ever ready after which a process is given up.
HOPELESS = 3
#: What a process writes to its ready descriptor.
READY = b"1"


class Child:
    """A process that is to run as long as the service does.

    Args:
        name: for people.
        module: what it runs; see `potstill.service.process.child`.
        arguments: of the module.
        lifeline: the read end of a pipe whose write end only this process has.
        descriptors: that it inherits.
        reports: it is called with ``--ready DESCRIPTOR`` in addition, and writes `READY` there when it is.
        nice: by how much its priority is lower.
        pause: seconds before it is started again after its first death; twice as long after each further one.
        variables: of its environment, besides those of this process.
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
        #: Whether it ever was.
        self.was_ready = not reports
        #: The descriptor on which it says that it is ready; None if nothing is to come.
        self.waiting: int | None = None

    @property
    def pid(self) -> int | None:
        """Of its process, if it runs."""
        return self._process.pid if self._process else None

    @property
    def hopeless(self) -> bool:
        """Whether it died several times and was never ready."""
        return not self.was_ready and self._deaths >= HOPELESS

    def start(self) -> None:
        """Start its process."""
        command, descriptors = self._command, self._descriptors
        ready, theirs = os.pipe()
        try:
            if self._reports:
                command, descriptors = [*command, "--ready", str(theirs)], (*descriptors, theirs)
            # A Ctrl-C reaches every process of the terminal's group, but what to do about it is for the parent to say:
            # so each gets a group of its own.
            self._process = subprocess.Popen(
                command, stdin=self._lifeline, pass_fds=descriptors, env=self._environment, process_group=0
            )
        finally:
            os.close(theirs)
        self._begun, self.waiting = time.monotonic(), ready

    def heard(self) -> None:
        """Take notice of what is on `waiting`; it ends there without a word if the process dies."""
        if self.waiting is not None:
            self.was_ready = os.read(self.waiting, 1) == READY or self.was_ready
            self._close_waiting()

    def buried(self) -> str | None:
        """How its process died, if it has since the last look; it is due again after a pause."""
        if self._process is None or self._process.poll() is None:
            return None
        code, self._process = self._process.returncode, None
        self._close_waiting()
        self._deaths = 1 if time.monotonic() - self._begun >= WELL else self._deaths + 1
        self._due = time.monotonic() + self._pause * 2 ** min(self._deaths - 1, DOUBLINGS)
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def due_in(self) -> float | None:
        """Seconds until it is to be started again; None if it runs."""
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
    """SIGTERM, SIGINT and the deaths of children, as something to wait for together with descriptors."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)

    @contextlib.contextmanager
    def caught(self) -> Iterator[Signals]:
        """Have them come here instead of ending the process."""
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
        """Wait for a signal or a descriptor: whether the end was asked for, and which descriptors have news."""
        with selectors.DefaultSelector() as selector:
            for descriptor in (self._ours.fileno(), *descriptors):
                selector.register(descriptor, selectors.EVENT_READ)
            news = [key.fd for key, _ in selector.select(timeout)]
        numbers: set[int] = set()
        with contextlib.suppress(BlockingIOError):
            numbers.update(self._ours.recv(4096))
        return bool(numbers & {signal.SIGTERM, signal.SIGINT}), [fd for fd in news if fd != self._ours.fileno()]


def keep_running(
    children: Sequence[Child],
    signals: Signals,
    *,
    on_ready: Callable[[], None],
    on_death: Callable[[Child, str], None],
) -> bool:
    """Keep children running until the end is asked for; False if one of them could never be started.

    Args:
        children: none of them started yet.
        signals: that are caught.
        on_ready: called once, when all have been ready.
        on_death: called with one that died and how, before it is started again.
    """
    announced = False
    while not any(child.hopeless for child in children):
        for child in children:
            if child.due_in() == 0.0:
                child.start()
        pauses = [pause for child in children if (pause := child.due_in()) is not None]
        waiting = {child.waiting: child for child in children if child.waiting is not None}
        asked, news = signals.wait(min(pauses, default=None), waiting)
        if asked:
            return True
        for descriptor in news:
            waiting[descriptor].heard()
        for child in children:
            if (how := child.buried()) is not None:
                on_death(child, how)
        if not announced and all(child.was_ready for child in children):
            announced = True
            on_ready()
    return False


def stop(children: Sequence[Child], signals: Signals, seconds: float) -> bool:
    """Ask children to end, and end those by force that do not within so many seconds, or if the end is asked for again.

    Returns:
        Whether the end was asked for again.
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
        child.buried()
    return [child for child in children if child.pid is not None]


def _nothing(_signal: int, _frame: FrameType | None) -> None:
    """The wakeup descriptor has the news; with no handler at all there would be none."""
