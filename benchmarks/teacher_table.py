"""Every teacher on the wheel and on video upload: its regret, that of its distilled policy, and the time of both.

Usage: python benchmarks/teacher_table.py [--trials 5] [--batches 8] [--size 500] [--teachers linear-ts ...] [--json]
Prints the table of docs/teachers.md. Policies are distilled on the observed contexts and 4,000 others. Trials are
paired: a teacher and its policy get the same contexts and reward noise. Each teacher runs in its own process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

import numpy as np

from potstill.distill import Student
from potstill.keys import Key
from potstill.lab.problems.environment import Simulation
from potstill.lab.problems.video import VideoUpload
from potstill.lab.problems.wheel import Wheel
from potstill.lab.runs.trial import Distilled, Turn, Undistilled, play
from potstill.teachers import available, from_config

PROBLEMS = {"wheel": Wheel, "video": VideoUpload}
UNLABELLED = 4000


def measure(name: str, problem: str, trials: int, sizes: list[int]) -> dict[str, Any]:
    environment, teacher = PROBLEMS[problem](), from_config({"type": name})
    own, distilled, last = [], [], []
    for seed in range(trials):
        rng = Key(seed).child("unlabelled").generator()
        more = environment.encode(environment.contexts(UNLABELLED, rng))
        for agent, regrets in (
            (Undistilled(environment.problem, teacher, seed), own),
            (Distilled(environment.problem, teacher, Student(), seed, more), distilled),
        ):
            world = Simulation(environment, sum(sizes), Key(seed))
            turns: list[Turn] = list(play(world, agent, sizes, seed))
            regrets.append(sum(turn.regret for turn in turns))
        # Nothing is learnt from the last batch.
        last.append(turns[-2].learned)
    difference = np.array(distilled) - np.array(own)
    return {
        "teacher": name,
        "problem": problem,
        "own": float(np.mean(own)),
        "distilled": float(np.mean(distilled)),
        "difference": float(difference.mean()),
        "standard_error": float(difference.std(ddof=1) / np.sqrt(trials)),
        "learn": float(np.median([learned.seconds["learn"] for learned in last])),
        "label": float(np.median([learned.seconds["label"] for learned in last])),
        "kl": float(np.mean([learned.kl for learned in last])),
    }


def in_own_process(name: str, problem: str, options: argparse.Namespace) -> dict[str, Any]:
    shape = [str(n) for n in (options.trials, options.batches, options.size)]
    command = [sys.executable, __file__, "--one", name, problem, *shape]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def show(row: dict[str, Any]) -> str:
    within = abs(row["difference"]) <= 2 * row["standard_error"]
    gap = f"{row['difference']:+.0f} ± {2 * row['standard_error']:.0f}"
    cells = [
        f"`{row['teacher']}`",
        row["problem"],
        f"{row['own']:.0f}",
        f"{row['distilled']:.0f}",
        gap if within else f"**{gap}**",
        f"{row['learn']:.2f}",
        f"{row['label']:.2f}",
        f"{row['kl']:.4f}",
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--size", type=int, default=500, help="decisions per batch")
    parser.add_argument("--teachers", nargs="*", default=available())
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, problem, trials, batches, size = options.one
        print(json.dumps(measure(name, problem, int(trials), [int(size)] * int(batches))))
        return
    if not options.json:
        print("| teacher | problem | regret, own | regret, distilled | paired difference | learn s | label s | KL |")
        print("|---|---|---|---|---|---|---|---|")
    for name in options.teachers:
        for problem in PROBLEMS:
            started = time.perf_counter()
            row = in_own_process(name, problem, options)
            print(json.dumps(row) if options.json else show(row), flush=True)
            print(f"{name} on {problem}: {time.perf_counter() - started:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
