"""Run independent tasks on all cores, with a progress bar. Results do not depend on the number of cores."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

from rich.console import Console
from rich.progress import Progress, TextColumn

from potstill.progress import bars

#: ``each(function, items, *common)`` maps a function over items in order, with common arguments.
Map = Callable[..., Iterator[Any]]


TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")
#: Numeric libraries read these when they are loaded, so a worker process must start with them. NPROC is the size of
#: XLA's thread pool. Trials run on the CPU even where there is a faster device, which would round differently.
ONE_THREAD = {
    "JAX_PLATFORMS": "cpu",
    "MKL_NUM_THREADS": "1",
    "NPROC": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}
#: Seconds between two polls of the workers' progress.
_TICK = 0.5
_counter: _Counter | None = None


def in_turn(function: Callable[..., Any], items: Iterable[Any], *common: Any) -> Iterator[Any]:
    """Map lazily, in order, in this process."""
    return (function(item, *common) for item in items)


class _Counter(Protocol):
    """A counter in shared memory."""

    value: int

    def get_lock(self) -> Any: ...


def _init_worker(counter: _Counter) -> None:
    global _counter
    _counter = counter
    # Ctrl-C reaches every process of the terminal; the parent terminates this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def advance() -> None:
    """Report one more step of `parallel_map` as done; does nothing outside of a worker."""
    if _counter is not None:
        with _counter.get_lock():
            _counter.value += 1


def parallel_map(
    function: Callable[[TaskT], ResultT],
    tasks: Sequence[TaskT],
    *,
    jobs: int,
    steps: int,
    on_progress: Callable[[int], None] = lambda _: None,
) -> list[ResultT]:
    """Results of a function for each task, in order, from processes with one numeric thread each.

    Args:
        function: Top-level function of a module, so that processes can import it; it calls `advance` after each step.
        tasks: Tasks, started in order; put the longest first.
        jobs: Number of processes.
        steps: Total number of steps of all tasks.
        on_progress: Called periodically with the number of steps done.
    """
    context, others = multiprocessing.get_context("spawn"), multiprocessing.active_children()
    counter: Any = context.Value("L", 0)
    workers = max(1, min(jobs, len(tasks)))
    with environment(ONE_THREAD), ProcessPoolExecutor(workers, context, _init_worker, (counter,)) as pool:
        futures = [pool.submit(function, task) for task in tasks]
        try:
            _watch(futures, lambda: on_progress(min(counter.value, steps)))
            return [future.result() for future in futures]
        except BaseException:
            # Interrupted or failed: kill running tasks, which could take minutes.
            for worker in set(multiprocessing.active_children()) - set(others):
                worker.kill()
            raise


def _watch(futures: Sequence[Future[Any]], on_tick: Callable[[], None]) -> None:
    unfinished = True
    while unfinished:
        done, waiting = wait(futures, _TICK, FIRST_EXCEPTION)
        unfinished = bool(waiting) and not any(future.exception() for future in done)
        on_tick()


def parallel_map_with_progress(
    function: Callable[[TaskT], ResultT],
    tasks: Sequence[TaskT],
    *,
    jobs: int,
    steps: int,
    title: str,
    console: Console,
) -> list[ResultT]:
    """`parallel_map` with a progress bar and an ETA, if the console is a terminal."""
    with bars(console, TextColumn("{task.completed:,.0f} of {task.total:,.0f}")) as progress:
        bar = progress.add_task(title, total=steps)
        return parallel_map(function, tasks, jobs=jobs, steps=steps, on_progress=partial(_set_progress, progress, bar))


def _set_progress(progress: Progress, bar: Any, steps: int) -> None:
    progress.update(bar, completed=steps)


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for processes started inside."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
