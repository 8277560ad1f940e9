"""Errors of sampled labels: of one label, and of the mean label over contexts, whose errors need not average out.

Usage: python benchmarks/label_errors.py [--contexts 4096] [--keys 8] [--reference FILE]
A teacher learns from two uniform batches and labels the contexts under several keys. The reference is the mean of
labels under 16 other keys; for the program, labels by 20,000 posterior draws. `--reference` keeps states and references
in a file, to compare versions of Potstill. Times are processor seconds.
"""

from __future__ import annotations

import argparse
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np

from potstill.keys import Key
from potstill.lab.demo.upload_program import upload
from potstill.lab.problems import OwnTable, find_scenario
from potstill.lab.runs.trial import Fixed
from potstill.policy import Policy
from potstill.problem import Observations
from potstill.teachers import AdaptiveTS, GaussianProcessTS, LowRankTS, ProgramTS

TEACHERS: dict[str, tuple[str, Any]] = {
    "AdaptiveTS, warfarin-20": ("warfarin-20", AdaptiveTS()),
    "GaussianProcessTS, wheel": ("wheel", GaussianProcessTS()),
    "LowRankTS, wheel": ("wheel", LowRankTS()),
    "ProgramTS, video": ("video", ProgramTS(upload)),
}
REFERENCE_KEYS = 16


def prepare(problem: str, teacher: Any, contexts: int) -> tuple[Observations, Any, Any]:
    scenario = find_scenario(problem, OwnTable())
    uniform, world = Fixed(Policy.uniform(scenario.problem, seed=1)), scenario.world(1)
    observations = world.batch(2 * scenario.batch, uniform.choose).observations
    rows = scenario.world(99).batch(contexts, uniform.choose).observations.contexts
    return observations, rows, teacher.update(teacher.init(scenario.problem), observations, Key(1))


def reference(teacher: Any, observations: Observations, rows: Any, state: Any) -> Any:
    if isinstance(teacher, ProgramTS):
        large = ProgramTS(teacher.program, draws=20_000, sets=1)
        return large.propensities(large.update(large.init(observations.problem), observations, Key(7)), rows, Key(0))
    return np.mean([teacher.propensities(state, rows, Key(1000 + i)) for i in range(REFERENCE_KEYS)], axis=0)


def measure(teacher: Any, observations: Observations, rows: Any, state: Any, truth: Any, keys: int) -> str:
    one, mean, learnt, label = [], [], [], []
    for i in range(keys):
        started = time.process_time()
        if isinstance(teacher, ProgramTS):  # its draws are those of its state
            state = teacher.update(teacher.init(observations.problem), observations, Key(2 + i))
        learnt.append(time.process_time() - started)
        started = time.process_time()
        found = teacher.propensities(state, rows, Key(2 + i))
        label.append(time.process_time() - started)
        one.append(np.sqrt(((found - truth) ** 2).mean()))
        mean.append(np.abs((found - truth).mean(axis=0)).max())
    stated = getattr(teacher.exactness, "mean_standard_error", lambda _: float("nan"))(len(rows))
    cells = [np.mean(one), np.mean(mean), stated, np.median(learnt), np.median(label)]
    return " | ".join(f"{cell:.5f}" if i < 3 else f"{cell:.2f}" for i, cell in enumerate(cells))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--contexts", type=int, default=4096)
    parser.add_argument("--keys", type=int, default=8)
    parser.add_argument("--reference", type=Path, default=None)
    options = parser.parse_args()
    known = pickle.loads(options.reference.read_bytes()) if options.reference and options.reference.exists() else {}
    print("| teacher | error of a label | of the mean label | stated, at most | infer s | label s |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, (problem, teacher) in TEACHERS.items():
        if name not in known:
            prepared = prepare(problem, teacher, options.contexts)
            known[name] = *prepared, reference(teacher, *prepared)
            if options.reference:
                options.reference.write_bytes(pickle.dumps(known))
        print(f"| {name} | {measure(teacher, *known[name], options.keys)} |", flush=True)


if __name__ == "__main__":
    main()
