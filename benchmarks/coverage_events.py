"""Coverage of the default intervals for rare events, and which logs are called trustworthy.

    python benchmarks/coverage_events.py --logs 1000 --jobs 2        # about 25 minutes
    python benchmarks/coverage_events.py --rates 0.01 --rows 10000   # one rate and size, all weights

Rewards are 0 or 1, with an event in 0.5 to 20 % of the rows; 34 actions. `flat`: uniform logging, and a target that
takes a third of the actions equally often, so weights are 0 or 3. `heavy`: uniform logging, and a target that takes
each action 0.6 times as often as the one before, with weights up to 14. `heavier`: logging and target prefer opposite
actions, with weights up to 22. Each log is evaluated as by a user, including the reward model.

`trusted` is the share of logs of which the verdict is that the estimate can be trusted, and the columns beside it are
the coverage among these. `all` is the coverage of dr among all logs, `normal` that of the normal interval.
"""

import argparse
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np

import potstill as ps
from potstill.evaluate import ArrayLog, evaluate
from potstill.keys import Key

LEVEL, ACTIONS = 0.95, 34
ESTIMATORS = ("dr", "snips", "ips")
RATES, ROWS = (0.005, 0.01, 0.02, 0.05, 0.2), (3_000, 10_000, 30_000)
PROBLEM = ps.Problem(
    name="events",
    context=[ps.Boolean("mobile")],
    actions=ps.Discrete([f"a{k}" for k in range(ACTIONS)]),
    reward=ps.Reward(low=0.0, high=1.0),
)
#: Rates of events relative to the overall one, by context and action.
RELATIVE = np.array([[0.7], [1.3]]) * np.linspace(0.6, 1.4, ACTIONS)[np.random.default_rng(7).permutation(ACTIONS)]
EVEN, FALLING = (
    np.full(ACTIONS, 1 / ACTIONS),
    np.power(0.8, np.arange(ACTIONS)) / np.power(0.8, np.arange(ACTIONS)).sum(),
)
STEEP = np.power(0.6, np.arange(ACTIONS)) / np.power(0.6, np.arange(ACTIONS)).sum()
#: Logging policy and target, by kind of weights.
POLICIES = {
    "flat": (EVEN, np.where(np.arange(ACTIONS) < ACTIONS // 3, 1 / (ACTIONS // 3), 0.0)),
    "heavy": (EVEN, STEEP),
    "heavier": (0.7 * FALLING + 0.3 * EVEN, FALLING[::-1]),
}


class Outcome(NamedTuple):
    """What one log gave: the verdict, effective rows and events, and whether intervals covered the true value."""

    trusted: bool
    effective: float
    events: float
    covered: tuple[bool, ...]
    normal: bool


def one_log(weights: str, rate: float, rows: int, seed: int) -> Outcome:
    rng = Key(seed).child(f"{weights} {rate} {rows}").generator()
    logging, target = POLICIES[weights]
    chance = (rate * RELATIVE).clip(max=1.0)
    mobile, actions = rng.integers(0, 2, rows), rng.choice(ACTIONS, rows, p=logging)
    log = ArrayLog(
        PROBLEM,
        contexts=mobile[:, None].astype(np.float32),
        actions=actions,
        rewards=rng.random(rows) < chance[mobile, actions],
        propensities=logging[actions],
    )
    names = ("likelihood", "normal")
    found = evaluate(log, np.tile(target, (rows, 1)), estimators=ESTIMATORS, intervals=names, level=LEVEL).target
    truth = float(target @ chance.mean(axis=0))
    default, normal = (
        tuple(one.intervals[name].low <= truth <= one.intervals[name].high for one in found.estimates.values())
        for name in names
    )
    return Outcome(
        found.trust.grade == "good", found.diagnostics.effective, found.diagnostics.events, default, normal[0]
    )


def line(weights: str, rate: float, rows: int, found: Sequence[Outcome]) -> str:
    trusted, effective, events, covered, normal = (np.array(column) for column in zip(*found, strict=True))
    among = [f"{share:8.1%}" for share in covered[trusted].mean(axis=0)] if trusted.any() else ["       –"] * 3
    return (
        f"{rate:6.1%} {weights:8} {rows:7,} {np.median(effective):9,.0f} {np.median(events):7,.0f} "
        f"{trusted.mean():8.1%} {' '.join(among)} {covered[:, 0].mean():8.1%} {normal.mean():8.1%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=1000)
    parser.add_argument("--rates", type=float, nargs="*", default=RATES)
    parser.add_argument("--rows", type=int, nargs="*", default=ROWS)
    parser.add_argument("--weights", choices=POLICIES, nargs="*", default=list(POLICIES))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    error, began = np.sqrt(LEVEL * (1 - LEVEL) / options.logs), time.perf_counter()
    print(f"nominal {LEVEL:.0%}; standard error of a coverage over all {options.logs:,} logs {error:.1%}")
    print(
        "events weights     rows effective  events  trusted "
        + " ".join(f"{e:>8}" for e in (*ESTIMATORS, "all", "normal"))
    )
    seeds = range(options.seed, options.seed + options.logs)
    with ProcessPoolExecutor(options.jobs) as pool:
        for weights in options.weights:
            for rows in options.rows:
                for rate in options.rates:
                    found = list(pool.map(partial(one_log, weights, rate, rows), seeds, chunksize=20))
                    print(line(weights, rate, rows, found), flush=True)
    print(f"{time.perf_counter() - began:,.0f} s")


if __name__ == "__main__":
    main()
