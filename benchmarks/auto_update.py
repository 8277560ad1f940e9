"""One update of the default teacher against its candidates: processor time and memory as observations grow.

    python benchmarks/auto_update.py                                    # 10,000, 100,000 and a million, 50 × 10
    python benchmarks/auto_update.py --observations 10000 --features 20 100 --actions 5 50

Rewards are 0 or 1, with thresholds and interactions of the features. A state that has learnt from 95 % of the
observations learns from the rest, and a policy is distilled: learn, label, imitate. `first` is the update before, from
the prior, as after a change of the teacher. Each row is a process of its own on one core. The ratio is the seconds of
learning to those of LinearTS, the teacher whose update is the cheapest.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time

TEACHERS = ("LinearTS", "NeuralLinearTS", "ForestTS", "AutoTS")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--observations", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--features", type=int, nargs="+", default=[50])
    parser.add_argument("--actions", type=int, nargs="+", default=[10])
    parser.add_argument("--teachers", nargs="+", default=list(TEACHERS), choices=TEACHERS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(_measure(given.one, given.observations[0], given.features[0], given.actions[0])))
        return
    print(f"{'observations':>12}{'features':>9}{'actions':>8}  {'teacher':15}", end="")
    print(f"{'first s':>9}{'learn s':>9}{'ratio':>8}{'label s':>9}{'imitate s':>10}{'in all s':>9}{'peak MB':>9}")
    for size in ((n, d, k) for n in given.observations for d in given.features for k in given.actions):
        base = None
        for teacher in given.teachers:
            found = _run(teacher, *size)
            base = base or found["learn"]
            n, d, k = size
            print(f"{n:12,}{d:9}{k:8}  {teacher:15}{found['first']:9.1f}{found['learn']:9.2f}", end="")
            print(f"{found['learn'] / base:8.0f}{found['label']:9.1f}{found['imitate']:10.1f}", end="")
            print(f"{found['learn'] + found['label'] + found['imitate']:9.1f}{found['mb']:9,.0f}", flush=True)


def _run(teacher: str, n: int, d: int, k: int) -> dict[str, float]:
    size = ["--observations", str(n), "--features", str(d), "--actions", str(k)]
    core = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    core["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    done = subprocess.run(
        [sys.executable, __file__, "--one", teacher, *size], check=True, stdout=subprocess.PIPE, env=os.environ | core
    )
    return json.loads(done.stdout.splitlines()[-1])


def _measure(name: str, n: int, d: int, k: int) -> dict[str, float]:
    import potstill as ps

    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    problem = ps.Problem(
        name="growth",
        context=[ps.Numeric(f"x{i}", low=0, high=1) for i in range(d)],
        actions=ps.Discrete([f"a{i}" for i in range(k)]),
    )
    observations = _observations(problem, n, d, k)
    still = ps.Still(problem, getattr(ps.teachers, name)(), seed=0)
    known = n * 95 // 100
    began = time.perf_counter()
    still.update(observations[slice(known)])
    first = time.perf_counter() - began
    seconds = still.update(observations[slice(known, None)]).seconds
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"first": first, "mb": peak, **seconds}


def _observations(problem, n: int, d: int, k: int):
    import numpy as np

    import potstill as ps

    rng = np.random.default_rng(0)
    x, actions = rng.random((n, d), np.float32), rng.integers(k, size=n).astype(np.int32)
    slopes, pairs, cuts = rng.normal(size=(d, k)), rng.integers(d, size=(2, k)), rng.random((2, k))
    score = np.take_along_axis(x @ slopes, actions[:, None], axis=1)[:, 0] / np.sqrt(d)
    rows = np.arange(n)
    step = (x[rows, pairs[0][actions]] > cuts[0][actions]) ^ (x[rows, pairs[1][actions]] > cuts[1][actions])
    rewards = (rng.random(n) < 1 / (1 + np.exp(1 - score - 2 * step))).astype(float)
    return ps.Observations(problem, x, actions, rewards, np.full(n, 1 / k, np.float32))


if __name__ == "__main__":
    main()
