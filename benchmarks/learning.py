"""NeuralLinear-TS on many observations in a lake, read in parts, on either engine: time and memory.

    python benchmarks/learning.py                                           # 1, 3 and 10 million observations
    python benchmarks/learning.py --observations 200000 --ways memory local # half a minute

38 features, 7 actions. `memory` is the teacher with all observations in memory, as without a lake. The other ways read
them three times, 200,000 at a time: to validate and summarise, to collect the network's minibatches, and to regress on
the network's features. A fourth pass reads the contexts to imitate on, since all of them are new. Each run is its own
process, measured as in scale.py. The state is what the registry stores per version, without the reservoir of contexts;
the error is that of predicted mean rewards.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scale import ACTIONS, FEATURES, Watched, problem, rewards_of

PER_COMMIT = 250_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--observations", type=int, nargs="+", default=[1_000_000, 3_000_000, 10_000_000])
    parser.add_argument("--ways", nargs="+", default=["memory", "local", "ray"])
    parser.add_argument("--folder", type=Path, help="folder for the lake, which takes 2 GB at 10 million")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        print(json.dumps(STEPS[given.step](given)))
        return
    print(f"{FEATURES} features, {ACTIONS} actions, NeuralLinear-TS")
    print(f"{'observations':>12} {'where':7}{'learn s':>9}{'rows/s':>11}{'CPU s':>8}{'peak MB':>9}", end="")
    print(f"{'state MB':>10}{'error':>9}")
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        for n in given.observations:
            _step("fill", n, "-", Path(folder))
            for way in given.ways:
                found = _step("learn", n, way, Path(folder))
                print(f"{n:12,} {way:7}{found['seconds']:9.1f}{n / found['seconds']:11,.0f}{found['cpu']:8.0f}", end="")
                print(f"{found['mb']:9,.0f}{found['state_mb']:10,.1f}{found['error']:9.4f}", flush=True)


def _step(name: str, n: int, way: str, folder: Path) -> dict[str, Any]:
    arguments = ["--step", name, "--observations", str(n), "--ways", way, "--folder", str(folder / str(n))]
    done = subprocess.run([sys.executable, __file__, *arguments], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout.splitlines()[-1])


def _fill(given: argparse.Namespace) -> dict[str, Any]:
    import polars as pl

    from potstill.events.lake import Lake
    from potstill.tables import TIME, context_column

    lake, [n] = Lake(str(given.folder), problem()), given.observations
    for number, first in enumerate(range(0, n, PER_COMMIT)):
        count, rng = min(PER_COMMIT, n - first), np.random.default_rng([1, number])
        contexts = rng.random((count, FEATURES), dtype=np.float32)
        actions = rng.integers(ACTIONS, size=count)
        frame = pl.DataFrame(contexts.astype(float), schema=[context_column(f"feature_{i}") for i in range(FEATURES)])
        lake.append(
            "observations",
            frame.with_columns(
                id=pl.format("id-{}", pl.int_range(first, first + count)),
                time=(pl.int_range(first, first + count) * 10_000).cast(TIME),
                action=pl.Series([f"action_{a}" for a in actions]),
                propensity=pl.lit(1 / ACTIONS),
                reward=pl.Series(rewards_of(contexts, actions, rng)),
                cut=pl.lit(1, pl.Int64),
            ),
            writer="benchmark",
            number=number + 1,
        )
    return {}


def _learn(given: argparse.Namespace) -> dict[str, Any]:
    import potstill as ps
    from potstill.events.lake import Lake, observation_chunks
    from potstill.pipeline.engines import open_engine
    from potstill.teachers import NeuralLinearTS

    [way] = given.ways
    parts = observation_chunks(Lake(str(given.folder), problem()), problem(), 0, 1)
    still = ps.Still(problem(), NeuralLinearTS(), student=ps.Student(hidden=(), steps=1))
    with Watched() as watched, open_engine("ray" if way == "ray" else "local") as engine:
        started = time.perf_counter()
        report = still.update(parts, earlier=None if way == "memory" else [], each=engine.map)
        took = time.perf_counter() - started
    rng = np.random.default_rng(0)
    contexts = rng.random((10_000, FEATURES), dtype=np.float32)
    actions = rng.integers(ACTIONS, size=len(contexts))
    predicted = still.teacher.marginals(still.state, contexts).location[np.arange(len(contexts)), actions]
    return {
        "seconds": report.seconds["learn"],
        "all": took,
        "mb": max(watched.megabytes),
        "cpu": sum(watched.processor.values()),
        "state_mb": len(still.memory()) / 1e6 - still.seen.contexts.nbytes / 1e6,
        "error": float(np.sqrt(np.mean((predicted - rewards_of(contexts, actions)) ** 2))),
    }


STEPS = {"fill": _fill, "learn": _learn}

if __name__ == "__main__":
    main()
