"""Off-policy evaluation: all estimators with normal intervals on a log of 38 features and 7 actions.

    python benchmarks/evaluate.py                          # 0.1, 0.3 and 1 million rows
    python benchmarks/evaluate.py --rows 0.1 0.3 1 3       # millions
    python benchmarks/evaluate.py --obp OTHER/bin/python   # compare with the estimates of Open Bandit Pipeline

The log is on disk as plain columns and is read in blocks of 100,000 rows. Its actions were drawn from a softmax; the
target is a policy of 2 x 100 units. The baseline is the minimum for any estimate: read the log once, compute the
policy's probabilities, and take the mean of weighted rewards with its standard error. Each step runs in its own
process. With `--obp`, Open Bandit Pipeline gets the same weights and predicted rewards, so estimates must agree up to
rounding.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

import potstill as ps
from potstill.evaluate import (
    ESTIMATORS,
    Block,
    compute_terms,
    dr_os,
    evaluate,
    fitted,
    numbered,
    predict,
    switch_dr,
    target,
)
from potstill.policy import Layer

FEATURES, ACTIONS, CHUNK = 38, 7, 100_000
PROBLEM = ps.Problem(
    name="evaluate-benchmark",
    context=[ps.Numeric(f"x{i}", low=0, high=1) for i in range(FEATURES)],
    actions=ps.Discrete([f"action-{i}" for i in range(ACTIONS)]),
    reward=ps.Reward(low=0, high=1),
)
COLUMNS = {"contexts": "<f4", "actions": "<i4", "rewards": "<f8", "propensities": "<f8"}
#: Parameters for both libraries.
THRESHOLD, SHRINKAGE = 3.0, 25.0


class DiskLog:
    """Columns in files of a folder."""

    problem = PROBLEM

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        return (self.folder / "rewards").stat().st_size // 8

    def blocks(self) -> Iterator[Block]:
        """All rows."""
        for first in range(0, len(self), CHUNK):
            yield Block(**{name: self._read(name, first) for name in COLUMNS})

    def _read(self, name: str, first: int) -> np.ndarray:
        kind, width = np.dtype(COLUMNS[name]), FEATURES if name == "contexts" else 1
        rows = np.fromfile(self.folder / name, kind, CHUNK * width, offset=first * width * kind.itemsize)
        return rows.reshape(-1, width) if name == "contexts" else rows


def write(folder: Path, rows: int) -> dict[str, object]:
    rng = np.random.default_rng(0)
    logging, truth = rng.normal(size=(2, FEATURES, ACTIONS)) / np.sqrt(FEATURES)
    for first in range(0, rows, CHUNK):
        count = min(CHUNK, rows - first)
        contexts = rng.uniform(size=(count, FEATURES)).astype(np.float32)
        p = np.exp(2 * contexts @ logging)
        p /= p.sum(axis=1, keepdims=True)
        actions = (p.cumsum(axis=1) < rng.uniform(size=(count, 1))).sum(axis=1).clip(0, ACTIONS - 1)
        chance = 1 / (1 + np.exp(-2 * contexts @ truth))
        taken = np.arange(count), actions
        columns = {
            "contexts": contexts,
            "actions": actions,
            "rewards": rng.uniform(size=count) < chance[taken],
            "propensities": p[taken],
        }
        for name, kind in COLUMNS.items():
            with (folder / name).open("ab") as file:
                columns[name].astype(kind).tofile(file)
    return {}


def policy() -> ps.Policy:
    rng = np.random.default_rng(1)
    sizes = [FEATURES, 100, 100, ACTIONS]
    layers = [
        Layer((rng.normal(size=(a, b)) / np.sqrt(a)).astype(np.float32), np.zeros(b, np.float32))
        for a, b in pairwise(sizes)
    ]
    return ps.Policy.build(PROBLEM, layers, version=1)


def evaluated(folder: Path, _: int) -> dict[str, object]:
    made = evaluate(DiskLog(folder), policy())
    return {"estimates": {name: each.value for name, each in made.target.estimates.items()}}


def bound(folder: Path, rows: int) -> dict[str, object]:
    decides, total, squares = policy(), 0.0, 0.0
    for block in DiskLog(folder).blocks():
        p = decides.probabilities_many(block.contexts)[np.arange(len(block)), block.actions]
        terms = p / block.propensities * block.rewards
        total, squares = total + terms.sum(), squares + terms @ terms
    value = total / rows
    return {"estimates": {"ips": value}, "error": np.sqrt((squares / rows - value**2) / (rows - 1))}


def given_predictions(folder: Path, _: int) -> dict[str, object]:
    """Our estimates from the arrays written for the other library."""
    log, decides = DiskLog(folder), target(PROBLEM, policy())
    model = fitted(None, log)
    arrays = [
        (block.actions, block.rewards, block.propensities, decides.distribution(block, first).p,
         predict(model, PROBLEM, block, first).rewards)
        for first, block in numbered(log)
    ]  # fmt: skip
    columns = map(np.concatenate, zip(*arrays, strict=True))
    np.savez(folder / "arrays.npz", **dict(zip(("action", "reward", "pscore", "dist", "q"), columns, strict=True)))
    (terms,) = compute_terms(log, [decides], model).terms
    started = time.perf_counter()
    fixed = {"switch-dr": lambda t: switch_dr(t, THRESHOLD), "dr-os": lambda t: dr_os(t, SHRINKAGE)}
    parts = {name: (fixed.get(name) or ESTIMATORS[name])(terms) for name in OBP}
    values = {name: each.value for name, each in parts.items()}
    return {"estimates": values, "alone": time.perf_counter() - started}


#: Names of our estimators in Open Bandit Pipeline.
OBP = {
    "ips": "InverseProbabilityWeighting()",
    "snips": "SelfNormalizedInverseProbabilityWeighting()",
    "dm": "DirectMethod()",
    "dr": "DoublyRobust()",
    "sndr": "SelfNormalizedDoublyRobust()",
    "switch-dr": f"SwitchDoublyRobust(lambda_={THRESHOLD})",
    "dr-os": f"DoublyRobustWithShrinkage(lambda_={SHRINKAGE})",
}
OBP_CODE = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np
from obp.ope import *
a = np.load(sys.argv[1])
given = dict(action=a["action"], reward=a["reward"], pscore=a["pscore"], action_dist=a["dist"][:, :, None],
             position=np.zeros(len(a["action"]), int), estimated_rewards_by_reg_model=a["q"][:, :, None])
started = time.perf_counter()
values = {name: float(eval(code).estimate_policy_value(**given)) for name, code in json.loads(sys.argv[2]).items()}
print(json.dumps({"estimates": values, "alone": time.perf_counter() - started}))
"""
STEPS: dict[str, Callable[[Path, int], dict[str, object]]] = {
    "write": write,
    "evaluate": evaluated,
    "numpy ips": bound,
    "given predictions": given_predictions,
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=float, nargs="+", default=[0.1, 0.3, 1], help="rows, in millions")
    arguments.add_argument("--obp", help="Python interpreter with Open Bandit Pipeline installed")
    arguments.add_argument("--folder", type=Path, help="folder for the logs; temporary by default")
    arguments.add_argument("--step", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.step:
        print(json.dumps(measure(given.step, given.folder, round(given.rows[0]))))
        return
    print("millions  step            seconds  processor     rows/s  peak MB  against numpy ips")
    for millions in given.rows:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            run(Path(folder), round(millions * 1e6))
            if given.obp and millions == given.rows[-1]:
                compare(Path(folder), round(millions * 1e6), given.obp)


def run(folder: Path, rows: int) -> None:
    apart(folder, "write", rows)
    lines = {step: apart(folder, step, rows) for step in ("numpy ips", "evaluate")}
    ours, least = lines["evaluate"]["estimates"]["ips"], lines["numpy ips"]["estimates"]["ips"]
    assert abs(ours - least) < 1e-9, (ours, least)
    for step, line in lines.items():
        print(
            f"{rows / 1e6:>8g}  {step:<14}{line['seconds']:>9.2f}{line['processor']:>11.2f}"
            f"{rows / line['seconds']:>11,.0f}{line['megabytes']:>9,.0f}"
            f"  {line['processor'] / lines['numpy ips']['processor']:.1f} of its processor time",
            flush=True,
        )


def compare(folder: Path, rows: int, python: str) -> None:
    ours = apart(folder, "given predictions", rows)
    command = [python, "-c", OBP_CODE, str(folder / "arrays.npz"), json.dumps(OBP)]
    theirs = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    print(f"\nthe same arrays, {rows:,} rows       ours       obp  difference")
    for name in OBP:
        one, other = ours["estimates"][name], theirs["estimates"][name]
        print(f"  {name:<28}{one:>10.6f}{other:>10.6f}{one - other:>12.1e}")
    print(f"  {'seconds for all':<28}{ours['alone']:>10.3f}{theirs['alone']:>10.3f}")


def apart(folder: Path, step: str, rows: int) -> dict:
    """Run one step in its own process."""
    command = [sys.executable, __file__, "--step", step, "--folder", str(folder), "--rows", str(rows)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def measure(step: str, folder: Path, rows: int) -> dict[str, object]:
    started, processor = time.perf_counter(), time.process_time()
    result = STEPS[step](folder, rows)
    return {
        **result,
        "seconds": time.perf_counter() - started,
        "processor": time.process_time() - processor,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


if __name__ == "__main__":
    main()
