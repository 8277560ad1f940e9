"""Many trials in parallel: every (problem, preset, algorithm, trial) is a task, and finished ones are saved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from potstill.keys import Key
from potstill.lab.problems import Scenario
from potstill.lab.runs import results
from potstill.lab.runs.algorithms import Algorithm
from potstill.lab.runs.eta import Group, Pace
from potstill.lab.runs.provenance import Settings
from potstill.lab.runs.workers import Advanced, Failed, Finished, Message, Task, Worker

#: Seconds between two progress reports while nothing happens.
TICK = 0.5


class Failure(msgspec.Struct, frozen=True):
    """A trial that could not be finished, and why."""

    task: Task
    error: str


class Progress(msgspec.Struct, kw_only=True):
    """Progress of a run, for `on_progress`.

    Attributes:
        total: Number of tasks, including those finished by earlier runs.
        kept: Number of tasks finished by earlier runs.
        finished: Number of tasks finished by this run.
        failures: Tasks that failed in this run.
        running: Share of decisions taken, for each running task.
        seconds_left: Estimated seconds left.
    """

    total: int
    kept: int
    finished: int = 0
    failures: list[Failure] = []
    running: dict[Task, float] = {}
    seconds_left: float = 0.0


def run(
    scenarios: Sequence[Scenario],
    pairs: Mapping[str, Sequence[tuple[str, Algorithm]]],
    *,
    trials: int,
    jobs: int,
    seed: int,
    out: Path,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Progress:
    """Run the unfinished trials, and save each when it ends. A stopped run can be resumed.

    Workers import the calling script, which therefore must call this under ``if __name__ == "__main__":``.

    Args:
        scenarios: Problems, each with its number of decisions.
        pairs: Pairs of a preset and an algorithm, by problem.
        trials: Number of trials of each algorithm on each problem; all algorithms get the same requests and noise.
        jobs: Number of processes.
        seed: Seed of all randomness.
        out: Folder for results; `OtherSettings` if it holds results of different settings.
        on_progress: Called after every event.
    """
    Settings.of(seed, scenarios, pairs).recorded(out)
    wanted = tasks(scenarios, pairs, trials, seed)
    kept = [task for task in wanted if _is_finished(out, task)]
    pace = Pace({scenario.name: scenario for scenario in scenarios}, pairs)
    for task in kept:
        if seconds := _seconds(out, task):
            pace.finished(task.group, seconds)
    todo = set(wanted).difference(kept)
    return _Run(scenarios, pace, out, [task for task in wanted if task in todo], len(kept)).go(jobs, on_progress)


def tasks(
    scenarios: Iterable[Scenario], pairs: Mapping[str, Sequence[tuple[str, Algorithm]]], trials: int, seed: int
) -> list[Task]:
    """Every trial of a run; trials with the same problem and number have the same seed."""
    return [
        Task(scenario.name, preset, algorithm.name, trial, Key(seed).child(scenario.name, trial).integer())
        for scenario in scenarios
        for preset, algorithm in pairs[scenario.name]
        for trial in range(trials)
    ]


def _is_finished(out: Path, task: Task) -> bool:
    path = results.path_of(out, *task.group, task.trial)
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(path.read_bytes(), type=results.Trial).seed == task.seed
    return False


def _seconds(out: Path, task: Task) -> float | None:
    """Seconds of a finished trial, if known."""
    path = results.path_of(out, *task.group, task.trial).with_suffix(".seconds.json")
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(path.read_bytes(), type=results.Seconds).total
    return None


class Backlog:
    """Waiting tasks, ordered so that each group compiles once and no long task is last.

    Args:
        tasks: Tasks, in any order.
        seconds: Approximate seconds of a task, by group.
    """

    def __init__(self, tasks: Iterable[Task], seconds: Callable[[Group], float]) -> None:
        groups: dict[Group, list[Task]] = {}
        for task in tasks:
            groups.setdefault(task.group, []).append(task)
        self._groups = {group: groups[group][::-1] for group in sorted(groups, key=seconds, reverse=True)}

    def __len__(self) -> int:
        return sum(self.counts().values())

    def counts(self) -> dict[Group, int]:
        """Number of waiting tasks of each group."""
        return {group: len(tasks) for group, tasks in self._groups.items()}

    def take(self, last: Group | None, others: set[Group]) -> Task | None:
        """Next task for a worker: from its last group, else from the longest group without a worker."""
        ranked = sorted(self._groups, key=lambda group: (group != last, group in others))
        if not ranked:
            return None
        tasks = self._groups[ranked[0]]
        task = tasks.pop()
        if not tasks:
            del self._groups[ranked[0]]
        return task


class _Run:
    """One run, from its first task to its last."""

    def __init__(self, scenarios: Sequence[Scenario], pace: Pace, out: Path, todo: list[Task], kept: int) -> None:
        self.scenarios, self.out = {scenario.name: scenario for scenario in scenarios}, out
        self.pace = pace
        self.backlog = Backlog(todo, self.pace.expected)
        self.progress = Progress(total=kept + len(todo), kept=kept)
        self.workers: list[Worker] = []

    def go(self, jobs: int, on_progress: Callable[[Progress], None]) -> Progress:
        """Run until no task is left; workers always end with the run."""
        try:
            self._staff(jobs)
            while self.workers:
                for worker in Worker.ready(self.workers, TICK):
                    self._hear(worker, worker.receive())
                self._look()
                on_progress(self.progress)
        finally:
            for worker in self.workers:
                worker.kill()
        return self.progress

    def _staff(self, jobs: int) -> None:
        for _ in range(min(jobs, self.progress.total - self.progress.kept)):
            self._employ(Worker(self.scenarios, self.out))

    def _employ(self, worker: Worker) -> None:
        """Send a worker its next task, or stop it."""
        others = {other.last for other in self.workers if other is not worker and other.last}
        task = self.backlog.take(worker.last, others)
        if task is None:
            worker.kill()
            self.workers = [other for other in self.workers if other is not worker]
            return
        worker.begin(task)
        if worker not in self.workers:
            self.workers.append(worker)

    def _hear(self, worker: Worker, message: Message | None) -> None:
        assert worker.task is not None
        match message:
            case Advanced(decisions):
                worker.decisions = decisions
            case Finished(seconds):
                self.progress.finished += 1
                self.pace.finished(worker.task.group, seconds)
                self._employ(worker)
            case Failed(error):
                self.progress.failures.append(Failure(worker.task, error))
                self._employ(worker)
            case None:
                self.progress.failures.append(Failure(worker.task, worker.obituary()))
                self._replace(worker)

    def _replace(self, dead: Worker) -> None:
        dead.kill()
        self.workers.remove(dead)
        self._employ(Worker(self.scenarios, self.out))

    def _look(self) -> None:
        """Current progress."""
        running = [(worker.task, self._share(worker), worker.elapsed) for worker in self.workers if worker.task]
        for task, share, seconds in running:
            self.pace.under_way(task.group, seconds, share)
        self.progress.running = {task: share for task, share, _ in running}
        under_way = [(task.group, seconds) for task, _, seconds in running]
        self.progress.seconds_left = self.pace.left(self.backlog.counts(), under_way, max(len(self.workers), 1))

    def _share(self, worker: Worker) -> float:
        assert worker.task is not None
        return worker.decisions / self.scenarios[worker.task.problem].decisions
