"""Worker processes for trials, each with one numeric thread and reused to keep compiled programs.

Equal seeds give equal bytes for any number of workers: the order of summation depends on the number of threads, which
is always one.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection, wait
from pathlib import Path

import msgspec

from potstill.keys import Key
from potstill.lab.problems import Scenario
from potstill.lab.runs import results
from potstill.lab.runs.algorithms import ALGORITHMS
from potstill.lab.runs.provenance import commit
from potstill.lab.runs.trial import Turn, play
from potstill.parallel import ONE_THREAD, environment


class Task(msgspec.Struct, frozen=True):
    """One trial to be run."""

    problem: str
    preset: str
    algorithm: str
    trial: int
    seed: int

    @property
    def group(self) -> tuple[str, str, str]:
        """Problem, preset and algorithm of the trial."""
        return self.problem, self.preset, self.algorithm

    def __str__(self) -> str:
        return f"{self.problem}, {self.algorithm} ({self.preset}), trial {self.trial}"


class Advanced(msgspec.Struct, frozen=True):
    """Progress of a worker's task."""

    decisions: int


class Finished(msgspec.Struct, frozen=True):
    """A worker has saved its trial, with its seconds."""

    seconds: float


class Failed(msgspec.Struct, frozen=True):
    """A worker's task ended in an error."""

    error: str


Message = Advanced | Finished | Failed


class Worker:
    """A process and its task.

    Args:
        scenarios: Scenarios by name.
        out: Folder for the trials.
    """

    def __init__(self, scenarios: Mapping[str, Scenario], out: Path) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, dict(scenarios), out), daemon=True)
        with environment(ONE_THREAD):
            self._process.start()
        # With this copy of its end closed, the pipe breaks when the worker dies.
        theirs.close()
        self.task: Task | None = None
        self.decisions = 0
        self._started = 0.0
        self.last: tuple[str, str, str] | None = None

    def begin(self, task: Task) -> None:
        """Send it a task."""
        self._pipe.send(task)
        self.task, self.decisions, self._started, self.last = task, 0, time.monotonic(), task.group

    def receive(self) -> Message | None:
        """Next message; None if the process has died."""
        try:
            message: Message = self._pipe.recv()
        except (EOFError, ConnectionError):
            return None
        return message

    @property
    def pid(self) -> int | None:
        """Process id."""
        return self._process.pid

    @property
    def elapsed(self) -> float:
        """Seconds since the task was sent."""
        return time.monotonic() - self._started

    def obituary(self) -> str:
        """Why the process died."""
        self._process.join()
        return f"its process died with exit code {self._process.exitcode}; -9 usually means out of memory"

    def kill(self) -> None:
        """Kill the process; only its current trial is lost."""
        self._process.kill()
        self._process.join()
        self._pipe.close()

    @staticmethod
    def ready(workers: list[Worker], timeout: float) -> list[Worker]:
        """Workers with a message, or dead ones, within `seconds`."""
        pipes = {worker._pipe: worker for worker in workers}
        return [pipes[pipe] for pipe in wait(list(pipes), timeout) if isinstance(pipe, Connection)]


# ---- in the worker's process


def serve(pipe: Connection, scenarios: dict[str, Scenario], out: Path) -> None:
    """Run tasks from a pipe until it breaks, when the parent process has ended."""
    # Ctrl-C reaches every process of the terminal; the parent decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    commit()  # cached now, for the imported code: the checkout may change later
    try:
        while True:
            task = pipe.recv()
            pipe.send(_attempted(task, scenarios[task.problem], out, pipe))
    except (EOFError, ConnectionError):
        return


def _attempted(task: Task, scenario: Scenario, out: Path, pipe: Connection) -> Message:
    started = time.perf_counter()
    try:
        turns = []
        for turn in turns_of(task, scenario):
            turns.append(turn)
            # Before saving: a worker that has lost its parent must not write.
            pipe.send(Advanced(sum(turn.decisions for turn in turns)))
        seconds = time.perf_counter() - started
        trial = results.summarised(turns, **msgspec.structs.asdict(task))
        results.save(out, trial, results.Seconds(total=seconds, stages=_stages(turns), commit=commit()))
    except ConnectionError:
        raise
    except Exception as error:
        return Failed(f"{type(error).__name__}: {error}")
    return Finished(seconds)


def turns_of(task: Task, scenario: Scenario) -> Iterator[Turn]:
    """Run one trial. All randomness comes from the task's seed, which algorithms and presets share."""
    # The first batch uses the seed itself: an agent with the same seed would repeat its draws.
    agent_seed = Key(task.seed).child("agent").integer()
    agent = ALGORITHMS[task.algorithm].make(scenario.problem, agent_seed, task.preset)
    return play(scenario.world(task.seed), agent, scenario.sizes, task.seed)


def _stages(turns: list[Turn]) -> dict[str, list[float]]:
    stages: dict[str, list[float]] = defaultdict(list)
    for turn in turns[:-1]:
        for stage, seconds in turn.learned.seconds.items():
            stages[stage].append(seconds)
    return dict(stages)
