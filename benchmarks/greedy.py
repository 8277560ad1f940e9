"""When exploring pays: regret of Thompson sampling against the greedy choice of the same teacher, as decisions grow.

Usage: python benchmarks/greedy.py [--problems wheel letter.csv=letter] [--teachers EmpiricalLinearTS] [--trials 5]
Prints the table of docs/teachers.md. Both act by themselves, undistilled, in paired trials of the lab with the same
requests, reward noise and first batch, which is uniform. The greedy one takes the action with the highest mean reward
of the posterior. A ratio below 1 says that exploring has paid by then.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from potstill import teachers
from potstill.keys import Key
from potstill.lab.problems import OwnTable, Scenario, find_scenario
from potstill.lab.runs.trial import Undistilled, play


class Greedy:
    """A teacher that takes the action of the highest mean reward."""

    def __init__(self, teacher: Any) -> None:
        self.init, self.update, self.mean_rewards = teacher.init, teacher.update, teacher.mean_rewards

    def sample_actions(self, state: Any, contexts: Any, n: int, key: Key) -> Any:  # noqa: ARG002
        """The best action of each context, n times."""
        best = self.mean_rewards(state, contexts).argmax(axis=1)
        return np.repeat(best[:, None], n, axis=1)


def regrets(scenario: Scenario, teacher: Any, seed: int, batches: int) -> np.ndarray:
    """Regret so far after each of the first batches."""
    agent = Undistilled(scenario.problem, teacher, Key(seed).child("agent").integer())
    turns = play(scenario.world(seed), agent, scenario.sizes[:batches], seed)
    return np.cumsum([turn.regret for turn in turns])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", nargs="+", default=["wheel", "mushroom"], metavar="NAME|FILE=LABEL")
    parser.add_argument("--teachers", nargs="+", default=["EmpiricalLinearTS"])
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--at", type=int, nargs="+", default=[1_000, 2_000, 5_000, 10_000])
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print("| problem | teacher | " + " | ".join(f"{at:,}" for at in given.at) + " |")
    print("|---|---|" + "---:|" * len(given.at))
    for name in given.problems:
        path, _, label = name.partition("=")
        scenario = find_scenario(path, OwnTable(label=label) if label else OwnTable(), decisions=max(given.at))
        scenario = scenario.with_batch(given.batch)
        for kind in given.teachers:
            teacher = getattr(teachers, kind)()
            runs = [
                [regrets(scenario, one, given.seed + i, max(given.at) // given.batch) for i in range(given.trials)]
                for one in (teacher, Greedy(teacher))
            ]
            thompson, greedy = np.array(runs)[:, :, [at // given.batch - 1 for at in given.at]]
            print(
                f"| {Path(path).stem} | `{kind}` | " + " | ".join(map(_cell, thompson.T, greedy.T)) + " |", flush=True
            )


def _cell(thompson: np.ndarray, greedy: np.ndarray) -> str:
    """The ratio of mean regrets, with two standard errors of the paired difference."""
    error = 2 * (thompson - greedy).std(ddof=1) / np.sqrt(len(greedy)) / greedy.mean()
    return f"{thompson.mean() / greedy.mean():.2f} ± {error:.2f}"


if __name__ == "__main__":
    main()
