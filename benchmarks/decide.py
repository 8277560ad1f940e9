"""Latency of one decision: Potstill's runtimes and alternatives, each in its own process.

Usage: python benchmarks/decide.py [--json] [--growth]
38 features, two hidden layers of 100, 7 actions, one decision at a time. Missing contenders are listed as not measured:
pip install 'potstill[bench]' installs Vowpal Wabbit and ONNX Runtime; torch is used only if installed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import potstill as ps
from potstill.policy import Layer
from potstill.policy.export import export

FEATURES, HIDDEN, ACTIONS = 38, (100, 100), 7
CONTEXTS, SECONDS, CHUNK = 500, 1.5, 20

#: The paper's Table 1, video transcoding, in microseconds: another machine (Xeon E5-2680 v4), PyTorch, float32.
PAPER = {"Linear-TS": 1575, "NeuralLinear-TS": 1931, "Bootstrap-NN-TS": 236, "TS-IL (the distilled policy)": 169}

Decide = Callable[[int], object]


def make_policy(features: int = FEATURES, hidden: tuple[int, ...] = HIDDEN, actions: int = ACTIONS) -> ps.Policy:
    problem = ps.Problem(
        name="bench",
        context=[ps.Numeric(f"x{i}", low=0, high=1) for i in range(features)],
        actions=ps.Discrete([f"action-{i}" for i in range(actions)]),
    )
    rng, sizes = np.random.default_rng(0), (features, *hidden, actions)
    layers = [
        Layer((rng.standard_normal((i, o)) / np.sqrt(i)).astype(np.float32), np.zeros(o, np.float32))
        for i, o in pairwise(sizes)
    ]
    return ps.Policy.build(problem, layers, version=1)


POLICY = make_policy()
ROWS = np.random.default_rng(1).random((CONTEXTS, FEATURES)).astype(np.float32)
DICTS = [{f"x{i}": float(v) for i, v in enumerate(row)} for row in ROWS]
IDS = [f"decision-{i}" for i in range(CONTEXTS)]


def native_dict() -> Decide:
    decide = POLICY.with_runtime("native").decide
    return lambda i: decide(DICTS[i], id=IDS[i])


def native_array() -> Decide:
    decide = POLICY.with_runtime("native").decide
    return lambda i: decide(ROWS[i], id=IDS[i])


def numpy_dict() -> Decide:
    decide = POLICY.with_runtime("numpy").decide
    return lambda i: decide(DICTS[i], id=IDS[i])


def numpy_forward() -> Decide:
    """The network alone, without encoding or draw."""
    runtime = POLICY.with_runtime("numpy")._runtime
    return lambda i: runtime.probabilities(ROWS[i : i + 1], None, 0.0)


def onnx_forward() -> Decide:
    onnxruntime = importlib.import_module("onnxruntime")
    from potstill.policy.export.onnx import to_model

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(to_model(POLICY).SerializeToString(), options)
    return lambda i: session.run(None, {"context": ROWS[i : i + 1]})


def torch_forward() -> Decide:
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    weights = [(torch.from_numpy(w.T.copy()), torch.from_numpy(b)) for w, b in POLICY.layers]
    rows = torch.from_numpy(ROWS)

    def decide(i: int) -> object:
        with torch.inference_mode():
            h = rows[i]
            for w, b in weights[:-1]:
                h = torch.tanh(torch.nn.functional.linear(h, w, b))
            p = torch.softmax(torch.nn.functional.linear(h, *weights[-1]), dim=0)
            return int(torch.multinomial(p, 1))

    return decide


def vowpal_wabbit(*options: str) -> Decide:
    vw = importlib.import_module("vowpalwabbit")
    workspace = vw.Workspace(f"--cb_explore {ACTIONS} {' '.join(options)} --quiet")
    lines = ["| " + " ".join(f"x{j}:{v:.6f}" for j, v in enumerate(row)) for row in ROWS]
    rng = np.random.default_rng(2)
    for i, line in enumerate(lines):
        workspace.learn(f"{1 + i % ACTIONS}:{-rng.random():.3f}:{1 / ACTIONS:.4f} {line}")
    return lambda i: workspace.predict(lines[i])


def linear_ts(features: np.ndarray[Any, Any] | None = None) -> Decide:
    """Optimised exact Thompson sampling: marginals from factors inverted offline, one t draw per action."""
    width = (FEATURES if features is None else HIDDEN[-1]) + 1
    rng = np.random.default_rng(3)
    inverse_root = np.tril(rng.standard_normal((ACTIONS, width, width))) / width
    mean, spread, dof = rng.standard_normal((ACTIONS, width)), np.ones(ACTIONS), np.full(ACTIONS, 200.0)
    x = np.ones(width)

    def decide(i: int) -> object:
        x[:-1] = ROWS[i] if features is None else forward(ROWS[i])
        projected = inverse_root @ x
        scale = spread * np.sqrt(np.einsum("kp,kp->k", projected, projected))
        return int((mean @ x + scale * rng.standard_t(dof)).argmax())

    return decide


def forward(row: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    for weight, bias in POLICY.layers[:-1]:
        row = np.maximum(row @ weight + bias, 0)
    return row


CONTENDERS: dict[str, Callable[[], Decide]] = {
    "Potstill native, from a dict": native_dict,
    "Potstill native, from an array": native_array,
    "Potstill NumPy, from a dict": numpy_dict,
    "NumPy network alone": numpy_forward,
    "ONNX Runtime, network alone": onnx_forward,
    "torch eager, network and draw": torch_forward,
    "Vowpal Wabbit --cb_explore": vowpal_wabbit,
    "Vowpal Wabbit --bag 10": lambda: vowpal_wabbit("--bag 10"),
    "Linear-TS, exact sampling in NumPy": linear_ts,
    "NeuralLinear-TS, exact sampling in NumPy": lambda: linear_ts(ROWS),
}


def timed(decide: Decide, seconds: float = SECONDS) -> dict[str, float]:
    """Median over chunks of calls, to exclude the clock's cost, and the 99th percentile of single calls."""
    for i in range(CONTEXTS):
        decide(i)
    chunks, singles = [], []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for start in range(0, CONTEXTS - CHUNK, CHUNK):
            began = time.perf_counter_ns()
            for i in range(start, start + CHUNK):
                decide(i)
            chunks.append((time.perf_counter_ns() - began) / CHUNK)
            began = time.perf_counter_ns()
            decide(start)
            singles.append(time.perf_counter_ns() - began)
    return {"median_us": statistics.median(chunks) / 1e3, "p99_us": float(np.quantile(singles, 0.99)) / 1e3}


def in_own_process(name: str) -> dict[str, Any]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--contender", name]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        return {"missing": done.stderr.strip().splitlines()[-1]}
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def batch() -> dict[str, Any]:
    """Decisions per second in batches of 1,000, on one core."""
    policy, rows = POLICY.with_runtime("native"), np.tile(ROWS, (2, 1))
    ids = [f"d{i}" for i in range(len(rows))]
    figures = timed(lambda _: policy.decide_many(rows, ids))
    return {"median_us": figures["median_us"] / len(rows), "per_second": len(rows) / figures["median_us"] * 1e6}


C_DRIVER = """
#include "bench.h"
#include <stdio.h>
#include <time.h>
int main(void)
{
    enum { CONTEXTS = 500, ROUNDS = 400 };
    static potstill_value values[CONTEXTS][BENCH_FEATURES];
    unsigned state = 1, checksum = 0;
    for (int c = 0; c < CONTEXTS; c++)
        for (int f = 0; f < BENCH_FEATURES; f++) {
            state = state * 1664525u + 1013904223u;
            values[c][f] = (potstill_value){POTSTILL_NUMBER, {.number = state / 4294967296.0}};
        }
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    for (int r = 0; r < ROUNDS; r++)
        for (int c = 0; c < CONTEXTS; c++) {
            potstill_decision decision;
            if (bench_decide(values[c], "decision-123", &decision) != POTSTILL_OK) return 1;
            checksum += (unsigned)decision.action;
        }
    clock_gettime(CLOCK_MONOTONIC, &to);
    const double us = (to.tv_sec - from.tv_sec) * 1e6 + (to.tv_nsec - from.tv_nsec) / 1e3;
    printf("%.4f %u\\n", us / (ROUNDS * CONTEXTS), checksum);
    return 0;
}
"""


def exported_c() -> dict[str, Any]:
    compiler = shutil.which("cc")
    if not compiler:
        return {"missing": "no C compiler"}
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        sources = [p for p in export(POLICY, "c", directory, "bench") if p.suffix == ".c" and p.stem != "example"]
        (directory / "driver.c").write_text(C_DRIVER)
        program = directory / "driver"
        files = [*map(str, sources), str(directory / "driver.c")]
        subprocess.run([compiler, "-std=gnu99", "-O3", *files, "-lm", "-o", str(program)], check=True)
        runs = [float(subprocess.run([program], capture_output=True, check=True).stdout.split()[0]) for _ in range(5)]
    return {"median_us": statistics.median(runs)}


def javascript() -> dict[str, Any]:
    node = shutil.which("node")
    if not node:
        return {"missing": "no node"}
    with tempfile.TemporaryDirectory() as folder:
        POLICY.save(Path(folder) / "bench.policy")
        (Path(folder) / "contexts.json").write_text(json.dumps(DICTS))
        script = Path(__file__).with_name("decide.js")
        command = [node, script, Path(folder) / "bench.policy", Path(folder) / "contexts.json"]
        figures: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return dict(figures["dict"])


def growth() -> dict[str, list[tuple[int, float]]]:
    """Microseconds per decision from an array, as one dimension grows."""

    def one(**sizes: Any) -> float:
        policy = make_policy(**sizes).with_runtime("native")
        row = np.random.default_rng(4).random(policy.problem.width).astype(np.float32)
        return timed(lambda i: policy.decide(row, id=IDS[i]), seconds=0.3)["median_us"]

    return {
        "features": [(n, one(features=n)) for n in (10, 38, 100, 300, 1000)],
        "actions": [(n, one(actions=n)) for n in (2, 7, 100, 1000, 10_000)],
        "width": [(n, one(hidden=(n, n))) for n in (10, 50, 100, 200, 500)],
    }


def show(figures: dict[str, Any]) -> None:
    base = figures["Potstill native, from a dict"]["median_us"]
    print(f"{'one decision: 38 features, 2x100, 7 actions':46}{'median us':>10}{'p99 us':>9}{'ratio to native':>17}")
    for name, f in figures.items():
        if "missing" in f:
            print(f"{name:46}  not measured: {f['missing']}")
            continue
        p99 = f"{f['p99_us']:9.1f}" if "p99_us" in f else f"{'':9}"
        print(f"{name:46}{f['median_us']:10.2f}{p99}{f['median_us'] / base:16.1f}x")
    print("\nThe paper's Table 1 (video transcoding), measured on other hardware:")
    for name, us in PAPER.items():
        print(f"{name:46}{us:10.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--growth", action="store_true", help="also measure growth with features, actions and width")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contender:
        print(json.dumps(batch() if options.contender == "batch" else timed(CONTENDERS[options.contender]())))
        return
    figures = {name: in_own_process(name) for name in CONTENDERS}
    figures["Potstill native, batches of 1,000"] = in_own_process("batch")
    figures["Potstill exported C, encoding included"] = exported_c()
    figures["Potstill JavaScript in Node, from an object"] = javascript()
    grown = growth() if options.growth else {}
    if options.json:
        print(json.dumps({"figures": figures, "growth": grown, "paper": PAPER}))
        return
    show(figures)
    for dimension, points in grown.items():
        print(f"\n{dimension:>10}: " + "   ".join(f"{n:,}: {us:.2f} us" for n, us in points))


if __name__ == "__main__":
    main()
