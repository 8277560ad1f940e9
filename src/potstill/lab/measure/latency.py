"""Decision latency, the paper's Table 1: one context at a time, on this machine.

The timed part is the choice of one action from an encoded context, including random draws and excluding encoding.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from potstill.keys import Key
from potstill.lab.measure.deciders import Decider, decider
from potstill.lab.problems import Float32, Simulation, scenario
from potstill.lab.runs import ALGORITHMS, Agent, Fixed
from potstill.policy import Policy

#: Problems with different costs per decision: the paper's, and the larger of the two Warfarin problems.
PROBLEMS = ("mushroom", "wheel", "video", "warfarin-20", "warfarin-50")
#: Number of observations that every timed agent has learnt from; more would not change its speed.
LEARNT = 200
#: Warm-up calls, so that caches and branch predictors are as in a running service.
WARM_UP = 50

Clock = Callable[[], int]


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Latency of one algorithm on one problem.

    Attributes:
        problem: Name of the problem.
        algorithm: Name of the algorithm.
        calls: Number of timed calls.
        mean_us: Mean microseconds per decision, including delays by other programs on the machine.
        two_se_us: Two standard errors of the mean.
        median_us: Median microseconds per decision.
        p99_us: 99th percentile over single calls.
    """

    problem: str
    algorithm: str
    calls: int
    mean_us: float
    two_se_us: float
    median_us: float
    p99_us: float


def measure(
    problems: Sequence[str],
    algorithms: Sequence[str],
    calls: int,
    *,
    preset: str = "paper",
    seconds: float = 20.0,
    on_progress: Callable[[str], None] = lambda _: None,
) -> list[Latency]:
    """Time every algorithm on every problem.

    Args:
        problems: Names of scenarios.
        algorithms: Names of algorithms.
        calls: Number of timed calls of each.
        preset: Preset of hyperparameters, for algorithms that have one.
        seconds: Time limit for each algorithm, in seconds.
        on_progress: Called with the name of the next measurement.
    """
    measured = []
    for problem in problems:
        for name in algorithms:
            on_progress(f"{problem}, {name}")
            agent, contexts = trained(problem, name, preset)
            nanoseconds = timed(decider(agent, seed=0), contexts, calls, seconds)
            measured.append(summary(problem, name, nanoseconds))
    return measured


def trained(problem: str, algorithm: str, preset: str) -> tuple[Agent, Float32]:
    """An agent that has learnt from one uniform batch, and the contexts of that batch."""
    # Simulated even where trials replay a log: the contexts are the same, and no log is needed.
    world = Simulation(scenario(problem).environment(), LEARNT, Key(0))
    known = ALGORITHMS[algorithm].presets
    agent = ALGORITHMS[algorithm].make(world.problem, 0, preset if preset in known else known[0])
    batch = world.batch(LEARNT, Fixed(Policy.uniform(world.problem)).choose)
    agent.learn(batch.observations)
    return agent, np.ascontiguousarray(batch.observations.contexts)


def timed(
    decide: Decider, contexts: Float32, calls: int, seconds: float, clock: Clock = time.perf_counter_ns
) -> list[int]:
    """Nanoseconds of single calls over the contexts in turn, including about 50 ns for the clock."""
    rows = list(contexts)
    for number in range(min(WARM_UP, calls)):
        decide(rows[number % len(rows)])
    taken: list[int] = []
    enough = clock() + int(seconds * 1e9)
    while len(taken) < calls:
        context = rows[len(taken) % len(rows)]
        before = clock()
        decide(context)
        after = clock()
        taken.append(after - before)
        if after > enough:
            break
    return taken


def summary(problem: str, algorithm: str, nanoseconds: Sequence[int]) -> Latency:
    """The latency of an algorithm on a problem, from some calls."""
    return Latency(problem=problem, algorithm=algorithm, **figures(nanoseconds))


def figures(nanoseconds: Sequence[int]) -> dict[str, Any]:
    """The figures of some calls, by the names of `Latency`."""
    us = np.asarray(nanoseconds, np.float64) / 1000
    spread = float(us.std(ddof=1)) if len(us) > 1 else 0.0
    return {
        "calls": len(us),
        "mean_us": float(us.mean()),
        "two_se_us": 2 * spread / math.sqrt(len(us)),
        "median_us": float(np.median(us)),
        "p99_us": float(np.percentile(us, 99)),
    }
