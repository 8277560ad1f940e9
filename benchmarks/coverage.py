"""Coverage of confidence intervals: every estimator and every interval over many simulated logs.

    python benchmarks/coverage.py --logs 1000 --jobs 2

The problem has four contexts, three actions and rewards of 0 and 1, so the true value is a sum of twelve products. Each
log is evaluated as by a user, including the reward model. The anytime interval is computed at each of several looks and
counts as covering only if it covers at all of them. `low` and `high` mark a coverage outside the range of 99.7 % of
runs with nominal coverage. Bernstein, exact and anytime intervals promise at least the nominal coverage, so for them
only `low` counts.

Some lows are expected: replay needs logs of uniformly random actions, the interval of the direct method ignores the
error of its model, and estimators that shrink weights accept a bias. A second table shows the coverage of normal
intervals by effective sample size, on logs with large weights. For rare events, see `coverage_events.py`.
"""

import argparse
import math
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

import potstill as ps
from potstill.evaluate import ESTIMATORS, ArrayLog, Parts, evaluate, normal
from potstill.evaluate.diagnostics import ENOUGH, FEW
from potstill.keys import Key

LEVEL = 0.95
INTERVALS = ("likelihood", "normal", "bootstrap", "bernstein", "exact", "anytime")
AT_LEAST = ("bernstein", "exact", "anytime")
FIRST_LOOK = 100

#: Probability of each context (mobile, evening); by context and action, mean rewards and the policies' probabilities.
FREQUENCY = np.array([0.4, 0.3, 0.2, 0.1])
REWARD = np.array([[0.2, 0.3, 0.4], [0.5, 0.4, 0.1], [0.3, 0.6, 0.2], [0.7, 0.2, 0.6]])
TARGET = np.array([[0.1, 0.2, 0.7], [0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.4, 0.2, 0.4]])
LOGGING = {
    "skewed": np.array([[0.6, 0.25, 0.15], [0.15, 0.7, 0.15], [0.5, 0.2, 0.3], [0.2, 0.6, 0.2]]),
    "uniform": np.full((4, 3), 1 / 3),
}
TRUTH = float(FREQUENCY @ (TARGET * REWARD).sum(axis=1))
PROBLEM = ps.Problem(
    name="coverage",
    context=[ps.Boolean("mobile"), ps.Boolean("evening")],
    actions=ps.Discrete(["a", "b", "c"]),
    reward=ps.Reward(low=0.0, high=1.0),
)
CONTEXTS = PROBLEM.encode_many([{"mobile": m, "evening": e} for m in (False, True) for e in (False, True)])


@dataclass(frozen=True)
class SimulatedLog:
    """A simulated log; any number of first rows can be used."""

    contexts: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    propensities: np.ndarray

    @classmethod
    def drawn(cls, logging: np.ndarray, rows: int, rng: np.random.Generator) -> "SimulatedLog":
        """Actions by the logging policy [contexts, actions]."""
        contexts = rng.choice(4, rows, p=FREQUENCY)
        actions = (rng.random((rows, 1)) > logging[contexts].cumsum(axis=1)).sum(axis=1)
        rewards = (rng.random(rows) < REWARD[contexts, actions]).astype(float)
        return cls(contexts, actions, rewards, logging[contexts, actions])

    def log(self, rows: int) -> ArrayLog:
        """The first rows."""
        return ArrayLog(
            PROBLEM,
            contexts=CONTEXTS[self.contexts[:rows]],
            actions=self.actions[:rows],
            rewards=self.rewards[:rows],
            propensities=self.propensities[:rows],
        )

    def target(self, rows: int) -> np.ndarray:
        """Probabilities of the target in the first rows."""
        return TARGET[self.contexts[:rows]]


@dataclass(frozen=True)
class CoverageResult:
    """Whether intervals covered the truth, and their final width; [estimators, intervals] each."""

    covered: np.ndarray
    width: np.ndarray


def one_log(logging: str, rows: int, looks: int, seed: int) -> CoverageResult:
    columns = SimulatedLog.drawn(LOGGING[logging], rows, Key(seed).child(logging).generator())
    shape = len(ESTIMATORS), len(INTERVALS)
    outcome = CoverageResult(np.ones(shape, bool), np.full(shape, np.inf))
    for n in np.unique(np.geomspace(FIRST_LOOK, rows, looks).astype(int)).tolist():
        fixed = INTERVALS[:-1] if n == rows else ()
        smallest = float(LOGGING[logging].min())
        found = evaluate(columns.log(n), columns.target(n), intervals=fixed, seed=seed, smallest=smallest)
        for e, estimate in enumerate(found.target.estimates.values()):
            for name, interval in {**estimate.intervals, "anytime": estimate.anytime}.items():
                place = e, INTERVALS.index(name)
                outcome.covered[place] &= interval.low <= TRUTH <= interval.high
                outcome.width[place] = interval.high - interval.low
    return outcome


def many_logs(logging: str, rows: int, looks: int, seeds: range, jobs: int) -> CoverageResult:
    """Share of logs whose interval covers the true value, and the mean width."""
    task = partial(one_log, logging, rows, looks)
    with ProcessPoolExecutor(jobs) as pool:
        outcomes = list(pool.map(task, seeds, chunksize=10))
    covered, width = (np.mean([getattr(each, name) for each in outcomes], axis=0) for name in ("covered", "width"))
    return CoverageResult(covered, width)


def band(logs: int) -> tuple[float, float]:
    """Range of the measured coverage in 99.7 % of runs with nominal coverage."""
    from scipy.stats import binom

    low, high = binom(logs, LEVEL).ppf([0.0015, 0.9985]) / logs
    return float(low), float(high)


def mark(name: str, covered: float, logs: int) -> str:
    low, high = band(logs)
    if covered < low:
        return "low"
    return "high" if covered > high and name not in AT_LEAST else ""


def lines(outcome: CoverageResult, logs: int) -> Iterator[str]:
    yield f"{'':12}" + "".join(f"{name:>20}" for name in INTERVALS)
    for estimator, covered, widths in zip(ESTIMATORS, outcome.covered, outcome.width, strict=True):
        cells = [
            f"{share:8.3f} {width:6.3f} {mark(name, share, logs):4}" if math.isfinite(width) else f"{'-':>15}     "
            for name, share, width in zip(INTERVALS, covered, widths, strict=True)
        ]
        yield f"{estimator:12}" + "".join(cells)


def by_effective_rows(logs: int, rng: np.random.Generator) -> Iterator[str]:
    """Coverage of normal intervals where one action in thirty has most of the weight."""
    logging, target, means = np.array([0.9, 0.07, 0.03]), np.array([0.1, 0.3, 0.6]), np.array([0.2, 0.3, 0.4])
    for effective in (30, FEW, 300, ENOUGH):
        rows, covered = round(effective * (target**2 / logging).sum()), np.zeros(2)
        for _ in range(logs):
            actions = rng.choice(3, rows, p=logging)
            weights, rewards = (target / logging)[actions], rng.random(rows) < means[actions]
            for e, denominator in enumerate((None, weights)):
                interval = normal(Parts(numerator=weights * rewards, denominator=denominator), LEVEL)
                covered[e] += interval.low <= target @ means <= interval.high
        yield f"{effective:>14,} {covered[0] / logs:10.3f} {covered[1] / logs:10.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=1000, help="rows of each log")
    parser.add_argument("--looks", type=int, default=12, help=f"number of looks, log-spaced from row {FIRST_LOOK} on")
    parser.add_argument("--logging", choices=LOGGING, nargs="*", default=list(LOGGING))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    low, high = band(options.logs)
    print(f"nominal {LEVEL}; by chance {low:.3f} to {high:.3f} over {options.logs:,} logs; true value {TRUTH:.4f}")
    for logging in options.logging:
        began, seeds = time.perf_counter(), range(options.seed, options.seed + options.logs)
        outcome = many_logs(logging, options.rows, options.looks, seeds, options.jobs)
        seconds = time.perf_counter() - began
        print(
            f"\n{logging} logging, {options.rows:,} rows, {options.looks} looks: coverage, mean width ({seconds:.0f} s)"
        )
        print("\n".join(lines(outcome, options.logs)))
    print("\ncoverage of normal intervals by effective rows\neffective rows        ips      snips")
    print("\n".join(by_effective_rows(options.logs, Key(options.seed).generator())))


if __name__ == "__main__":
    main()
