"""Many contexts, labelled exactly from a NeuralLinear posterior and distilled, on either engine: time and memory.

    python benchmarks/scale.py                                          # 1, 3 and 10 million contexts, both engines
    python benchmarks/scale.py --contexts 100000 --engines local        # a minute
    python benchmarks/scale.py --only summaries

38 features, 7 actions. The contexts are a Delta Lake table. Each run is its own process. Memory is the peak total of
the process and its children, sampled twice a second, with shared memory counted once. Processor time includes the
children too; compare that on a busy machine. Then one student imitates the same labels, and two on Ray whose weights
are averaged.

Summaries of observations for Linear-TS are compared with the same matrix product in NumPy, both on one core.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

FEATURES, ACTIONS, OBSERVATIONS = 38, 7, 20_000
PER_FILE = 500_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=int, nargs="+", default=[1_000_000, 3_000_000, 10_000_000])
    parser.add_argument("--engines", nargs="+", default=["local", "ray"])
    parser.add_argument("--observations", type=int, default=10_000_000, help="number of observations to summarise")
    parser.add_argument("--only", choices=["summaries", "contexts"])
    parser.add_argument(
        "--folder", type=Path, help="folder for the table and the labels, which take 4 GB at 10 million"
    )
    parser.add_argument("--step", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        print(json.dumps(STEPS[given.step](given)))
        return
    if given.only != "contexts":
        _summaries(given.observations)
    if given.only != "summaries":
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            _contexts(Path(folder), given.contexts, given.engines)


def _summaries(n: int) -> None:
    found = _step("summarise", ["--observations", str(n)], threads=1)
    print(f"{n:,} observations x {FEATURES} features x {ACTIONS} actions for Linear-TS, one core")
    print(f"  summarise                    {n / found['seconds'] / 1e6:6.1f} million rows/s")
    print(f"  matrix product alone         {n / found['bound'] / 1e6:6.1f} million rows/s, with rows in cache")


def _contexts(folder: Path, sizes: list[int], engines: list[str]) -> None:
    cores = os.cpu_count()
    print(f"\n{FEATURES} features, {ACTIONS} actions, NeuralLinear on {OBSERVATIONS:,} observations; {cores} cores")
    print(
        f"{'contexts':>12} {'engine':7}{'label s':>9}{'rows/s':>9}{'imitate s':>11}{'rows/s':>9}{'both s':>8}", end=""
    )
    print(f"{'CPU s':>8}{'peak MB':>9}{'labels MB':>11}{'steps':>8}{'KL':>9}")
    total: dict[tuple[int, str], float] = {}
    cpu: dict[tuple[int, str], float] = {}
    for n in sizes:
        _step("table", ["--contexts", str(n), "--folder", str(folder)])
        for engine in engines:
            found = _step("distil", ["--contexts", str(n), "--folder", str(folder), "--engines", engine])
            both, cpu[n, engine] = found["label"] + found["imitate"], found["cpu"]
            total[n, engine] = both
            print(f"{n:12,} {engine:7}{found['label']:9.1f}{n / found['label']:9,.0f}{found['imitate']:11.1f}", end="")
            print(f"{n / found['imitate']:9,.0f}{both:8.1f}{found['cpu']:8.0f}{found['mb']:9,.0f}", end="")
            print(f"{found['labels_mb']:11,.0f}{found['steps']:8,}{found['kl']:9.5f}", flush=True)
        if {"local", "ray"} <= set(engines):
            wall, work = (took[n, "ray"] / took[n, "local"] for took in (total, cpu))
            print(f"{'':13}ray takes {wall:.2f} of the time of local, and {work:.2f} of its processor time", flush=True)
            found = _step("students", ["--contexts", str(n), "--folder", str(folder)])
            print(f"{'':13}one student {found['alone']:.1f} s, KL {found['alone_kl']:.5f};", end=" ")
            print(f"two on Ray {found['together']:.1f} s, KL {found['together_kl']:.5f},", end=" ")
            print(f"of which {found['first']:.1f} s until the first round is done", flush=True)


def _step(name: str, arguments: list[str], threads: int | None = None) -> dict[str, Any]:
    # Ray's workers run at low priority by default, which would distort the comparison on a busy machine.
    equal = {"RAY_worker_niceness": "0"}
    limits = {f"{library}_NUM_THREADS": str(threads) for library in ("OPENBLAS", "OMP", "MKL")} if threads else {}
    command = [sys.executable, __file__, "--step", name, *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env={**os.environ, **equal, **limits})
    return json.loads(done.stdout.splitlines()[-1])


# ---- steps, each in its own process


def _summarise(given: argparse.Namespace) -> dict[str, Any]:
    """Contexts in parts of 200,000, as read from the lake."""
    import potstill as ps
    from potstill.teachers import LinearTS

    rng, part = np.random.default_rng(0), 200_000
    contexts = rng.random((part, FEATURES), dtype=np.float32)
    actions = rng.integers(ACTIONS, size=part, dtype=np.int32)
    observations = ps.Observations(problem(), contexts, actions, rng.random(part), np.full(part, 1 / 7, np.float32))
    teacher, parts = LinearTS(), given.observations // part
    started = time.process_time()
    total = teacher.summarise(observations)
    for _ in range(parts - 1):
        total = total + teacher.summarise(observations)
    seconds = time.process_time() - started
    block, blocks = rng.random((2048, FEATURES + 2)), given.observations // 2048
    started = time.process_time()
    for _ in range(blocks):
        block.T @ block
    return {"seconds": seconds, "bound": time.process_time() - started}


def _table(given: argparse.Namespace) -> dict[str, Any]:
    import polars as pl
    from deltalake import write_deltalake

    n, place = given.contexts[0], str(given.folder / f"contexts-{given.contexts[0]}")
    for part in range(-(-n // PER_FILE)):
        rows = min(PER_FILE, n - part * PER_FILE)
        values = np.random.default_rng([1, part]).random((rows, FEATURES), dtype=np.float32)
        frame = pl.DataFrame(values, schema=[f"feature_{i}" for i in range(FEATURES)])
        write_deltalake(place, frame, mode="append")
    return {}


def _distil(given: argparse.Namespace) -> dict[str, Any]:
    import potstill as ps
    from potstill.keys import Key
    from potstill.pipeline.engines import open_engine
    from potstill.pipeline.labels import LabelStore, StreamedContexts
    from potstill.pipeline.shards import Table, shards
    from potstill.teachers import NeuralLinearTS

    n, [engine] = given.contexts[0], given.engines
    labels = given.folder / f"labels-{n}-{engine}"
    labels.mkdir()
    table = Table.at(str(given.folder / f"contexts-{n}"))
    still = ps.Still(problem(), NeuralLinearTS(), seed=0)
    with Watched() as watched, open_engine(engine) as opened:
        parts = shards(table, table.count(), n)
        contexts = StreamedContexts(still.problem, parts, Key(0), opened, LabelStore(str(labels), 1))
        report = still.update(_observations(), contexts, each=opened.map)
    size = sum(path.stat().st_size for path in labels.iterdir()) / 1e6
    return {
        **report.seconds,
        "mb": max(watched.megabytes),
        "cpu": sum(watched.processor.values()),
        "labels_mb": size,
        "steps": report.steps,
        "kl": report.fidelity.kl_mean,
    }


def _students(given: argparse.Namespace) -> dict[str, Any]:
    import potstill as ps
    from potstill.distill.averaged import imitate_averaged
    from potstill.distill.streamed import imitate_streamed
    from potstill.keys import Key
    from potstill.pipeline.engines import open_engine
    from potstill.spaces.finite_learning import FiniteLearning

    labels, ends = Kept(given.folder / f"labels-{given.contexts[0]}-local"), []
    learning = FiniteLearning(labels.read(0)[1].shape[1])
    started = time.perf_counter()
    alone = imitate_streamed(labels, ps.Student(), Key(0), learning=learning)
    alone_took = time.perf_counter() - started
    with open_engine("ray") as opened:
        started = time.perf_counter()
        told = lambda done, of: ends.append(time.perf_counter() - started)  # noqa: ARG005, E731
        together = imitate_averaged(labels, ps.Student(), Key(0), 2, opened.map, on_progress=told, learning=learning)
    return {
        "alone": alone_took,
        "alone_kl": alone.kl,
        "together": ends[-1],
        "together_kl": together.kl,
        "first": ends[0],
    }


class Kept:
    """Labels that an earlier step wrote to a folder."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.safetensors"))
        self.rows = [len(self.read(i)[1]) for i in range(len(self.paths))]
        self.mean = None

    def read(self, shard: int) -> tuple[np.ndarray, np.ndarray]:
        """The contexts and labels of a shard."""
        from safetensors.numpy import load_file

        arrays = load_file(self.paths[shard])
        return arrays["contexts"], arrays["labels"]


def problem() -> Any:
    """The problem shared by the scale benchmarks."""
    import potstill as ps

    return ps.Problem(
        name="scale",
        context=[ps.Numeric(f"feature_{i}", low=0, high=1) for i in range(FEATURES)],
        actions=ps.Discrete([f"action_{a}" for a in range(ACTIONS)]),
    )


def rewards_of(contexts: np.ndarray, actions: np.ndarray, noise: np.random.Generator | None = None) -> np.ndarray:
    """Noisy rewards, nonlinear in the context: a posterior that is neither sharp nor flat."""
    direction = np.random.default_rng(2).standard_normal((FEATURES, ACTIONS)) / np.sqrt(FEATURES)
    mean = np.tanh(3 * (contexts - 0.5) @ direction)[np.arange(len(actions)), actions]
    return mean if noise is None else mean + 0.5 * noise.standard_normal(len(actions))


def _observations() -> Any:
    import potstill as ps

    rng = np.random.default_rng(3)
    contexts = rng.random((OBSERVATIONS, FEATURES), dtype=np.float32)
    actions = rng.integers(ACTIONS, size=OBSERVATIONS, dtype=np.int32)
    propensities = np.full(OBSERVATIONS, 1 / ACTIONS, np.float32)
    return ps.Observations(problem(), contexts, actions, rewards_of(contexts, actions, rng), propensities)


class Watched:
    """Samples the memory of this process and its children in MB, and the processor time of each."""

    def __enter__(self) -> "Watched":
        self.megabytes, self.processor = [0.0], {}
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.ended.wait(0.5):
            family = _family(os.getpid())
            self.megabytes.append(sum(map(_proportional_kb, family)) / 1024)
            self.processor.update({pid: seconds for pid in family if (seconds := _processor_seconds(pid))})


def _family(pid: int) -> set[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def _processor_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _proportional_kb(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


STEPS = {"summarise": _summarise, "table": _table, "distil": _distil, "students": _students}

if __name__ == "__main__":
    main()
