"""Regret of Linear-TS with inverse-propensity weights against equal weights, in paired trials of the lab's problems.

Usage: python benchmarks/weighting.py [--problems wheel mushroom warfarin-20] [--trials 10] [--seed 0] [--json]
Prints the table of docs/teachers.md. Linear-TS acts by itself, undistilled, so that only the posterior differs. Trials
are those of `potstill lab`, with the seeds `seed` to `seed + trials - 1`; both teachers get the same requests, reward
noise and first batch.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np

from potstill.keys import Key
from potstill.lab.problems import OwnTable, Scenario, find_scenario
from potstill.lab.runs.trial import Undistilled, play
from potstill.teachers import LinearTS


def regret(scenario: Scenario, teacher: LinearTS, seed: int) -> float:
    agent = Undistilled(scenario.problem, teacher, Key(seed).child("agent").integer())
    return sum(turn.regret or 0.0 for turn in play(scenario.world(seed), agent, scenario.sizes, seed))


def measure(name: str, trials: int, seed: int) -> dict[str, Any]:
    scenario, teachers = find_scenario(name, OwnTable()), (LinearTS(), LinearTS(weighting="inverse-propensity"))
    equal, weighted = np.array([[regret(scenario, t, seed + i) for i in range(trials)] for t in teachers])
    difference = weighted - equal
    return {
        "problem": name,
        "decisions": scenario.decisions,
        "trials": trials,
        "equal": float(equal.mean()),
        "weighted": float(weighted.mean()),
        "difference": float(difference.mean()),
        "standard_error": float(difference.std(ddof=1) / np.sqrt(trials)),
    }


def show(row: dict[str, Any]) -> str:
    within = abs(row["difference"]) <= 2 * row["standard_error"]
    gap = f"{row['difference']:+,.0f} ± {2 * row['standard_error']:,.0f}"
    cells = [
        f"{row['problem']}, {row['decisions']:,} decisions",
        *(f"{row[name]:,.0f}" for name in ("equal", "weighted")),
    ]
    return "| " + " | ".join([*cells, gap if within else f"**{gap}**"]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="*", default=["wheel", "mushroom", "warfarin-20"])
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if not options.json:
        print("| problem | regret, equal weights | regret, inverse propensities | paired difference |")
        print("|---|---:|---:|---:|")
    for name in options.problems:
        row = measure(name, options.trials, options.seed)
        print(json.dumps(row) if options.json else show(row), flush=True)


if __name__ == "__main__":
    main()
