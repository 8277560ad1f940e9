"""Offline cost of each registered teacher: seconds to update and to label, and their growth.

    python benchmarks/teachers.py                     every teacher, 50,000 observations x 117 features, 2 and 7 actions
    python benchmarks/teachers.py --teacher linear-ts --observations 10000 50000 --actions 7

Each teacher runs in its own process. `first` is an update in a fresh process, compilation included; `update` is the
same update again, and `cpu` its processor time over all cores, which is more reliable on a busy machine. `x gram` is
the update as a multiple of the minimum for any regression, X'X of all observations in float64, measured in the same
process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import potstill as ps
from potstill.keys import Key
from potstill.teachers import TEACHERS

FEATURES, CONTEXTS = 117, 10_000
#: Target seconds for an update of 50,000 observations on 2 cores.
TARGETS = {"linear-ts": 0.5, "neural-linear-ts": 5.0, "bootstrap-ts": 10.0, "gaussian-process-ts": 20.0}


def example(n: int, actions: int) -> ps.Observations:
    """Noisy rewards, slightly nonlinear in the contexts."""
    problem = ps.Problem(
        name="benchmark",
        context=tuple(ps.Numeric(f"x{i}", low=0, high=1) for i in range(FEATURES)),
        actions=ps.Discrete(tuple(f"a{i}" for i in range(actions))),
    )
    rng = np.random.default_rng(0)
    contexts, taken = rng.random((n, FEATURES), np.float32), rng.integers(actions, size=n)
    slopes = rng.standard_normal((FEATURES, actions)) / FEATURES**0.5
    rewards = np.abs((contexts - 0.5) @ slopes)[np.arange(n), taken] + 0.1 * rng.standard_normal(n)
    return ps.Observations.from_columns(
        problem, contexts=contexts, actions=taken, rewards=rewards, propensities=np.full(n, 1 / actions)
    )


def seconds(action: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> tuple[float, Any]:
    start = clock()
    result = action()
    return clock() - start, result


def measure(name: str, n: int, actions: int) -> dict[str, float]:
    """Measure one teacher in this process."""
    teacher, observations = TEACHERS[name](), example(n, actions)
    prior, contexts = teacher.init(observations.problem), observations.contexts[:CONTEXTS]
    first, _ = seconds(lambda: teacher.update(prior, observations, Key(0)))
    update, state = seconds(lambda: teacher.update(prior, observations, Key(0)))
    cpu, _ = seconds(lambda: teacher.update(prior, observations, Key(0)), time.process_time)
    label, _ = seconds(lambda: teacher.propensities(state, contexts, Key(1)))
    x = observations.contexts.astype(np.float64)
    gram = min(seconds(lambda: x.T @ x)[0] for _ in range(3))
    return {"first": first, "update": update, "cpu": cpu, "label": label, "gram": gram}


def apart(name: str, n: int, actions: int) -> dict[str, float] | None:
    """Measure one teacher in its own process; None if it fails."""
    command = [sys.executable, __file__, "--one", name, str(n), str(actions)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def row(name: str, n: int, actions: int, measured: dict[str, float]) -> str:
    first, update, cpu, label, gram = (measured[k] for k in ("first", "update", "cpu", "label", "gram"))
    target = f"{TARGETS[name]:6.1f} s" if name in TARGETS and n == 50_000 else ""
    return (
        f"{name:<22}{actions:>8}{n:>13,}{first:>9.2f}{update:>9.2f}{cpu:>9.2f}{update / gram:>9.0f}"
        f"{label:>9.2f}{1e6 * label / CONTEXTS:>10.1f}{target:>10}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", nargs="*", default=sorted(TEACHERS), choices=sorted(TEACHERS))
    parser.add_argument("--observations", nargs="*", type=int, default=[12_500, 50_000])
    parser.add_argument("--actions", nargs="*", type=int, default=[2, 7])
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one[0], int(options.one[1]), int(options.one[2]))))
        return
    print(f"{FEATURES} features; labels for {CONTEXTS:,} contexts; seconds")
    heads = f"{'first':>9}{'update':>9}{'cpu':>9}{'x gram':>9}{'label':>9}{'us each':>10}{'target':>10}"
    print(f"{'teacher':<22}{'actions':>8}{'observations':>13}{heads}")
    for name in options.teacher:
        for actions in options.actions:
            for n in options.observations:
                if (measured := apart(name, n, actions)) is not None:
                    print(row(name, n, actions, measured), flush=True)


if __name__ == "__main__":
    main()
