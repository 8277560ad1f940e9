"""Time of a native decision by kind of input, compared with the NumPy oracle in the same process.

Usage: python benchmarks/decide_native.py [--growth]
Each figure is the median over blocks of calls, with the fastest block in brackets; on a busy machine the true time lies
between them. `decide.py` compares with other libraries.
"""

from __future__ import annotations

import argparse
import statistics
import timeit
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

import potstill as ps
from potstill.policy import Layer, _native
from potstill.problem import Feature

BLOCKS, BLOCK_SECONDS = 40, 0.01


def make_policy(features: list[Feature], width: int = 100, actions: int = 7) -> ps.Policy:
    problem = ps.Problem(name="bench", context=features, actions=ps.Discrete([f"a{k}" for k in range(actions)]))
    rng = np.random.default_rng(0)
    layers = [
        Layer((rng.standard_normal((i, o)) / np.sqrt(i)).astype(np.float32), np.zeros(o, np.float32))
        for i, o in pairwise([problem.width, width, width, actions])
    ]
    return ps.Policy.build(problem, layers, version=1)


def numbers(count: int) -> list[Feature]:
    return [ps.Numeric(f"feature_{i}", low=0, high=1) for i in range(count)]


def mixed() -> list[Feature]:
    """20 numbers, 10 of which on a log scale, 10 categories of 8 values, and 8 booleans: 38 features, 118 columns."""
    return [
        *(ps.Numeric(f"number_{i}", low=1, high=100, scale="log" if i % 2 else "linear") for i in range(20)),
        *(ps.Categorical(f"category_{i}", [f"value {k}" for k in range(8)]) for i in range(10)),
        *(ps.Boolean(f"flag_{i}") for i in range(8)),
    ]


def later() -> list[Feature]:
    """The mixed features with two of them hashed, and an embedding of 16 numbers: 39 features, 244 columns."""
    hashed = [ps.Hashed(f"merchant_{i}", size=64) for i in range(2)]
    return [*mixed()[:18], *mixed()[20:], *hashed, ps.Vector("embedding", size=16, norm="unit")]


def measure(statement: str, names: dict[str, Any]) -> tuple[float, float]:
    """Median and minimum over blocks, in microseconds per run of a statement."""
    timer = timeit.Timer(statement, globals=names)
    runs = max(1, int(BLOCK_SECONDS / max(timer.timeit(1), 1e-6)))
    blocks = [seconds / runs * 1e6 for seconds in timer.repeat(BLOCKS, runs)]
    return statistics.median(blocks), min(blocks)


def show(name: str, policy: ps.Policy, statement: str, per: int = 1, **names: Any) -> None:
    """One line: the statement on both runtimes, in microseconds per decision."""
    median, fastest = measure(statement, names | {"policy": policy.with_runtime("native")})
    oracle, _ = measure(statement, names | {"policy": policy.with_runtime("numpy")})
    print(f"{name:36}{median / per:9.2f} ({fastest / per:6.2f}){oracle / per:10.2f}{oracle / median:9.1f}x")


def one_decision() -> None:
    decide = "policy.decide(x, id='request-1')"
    for kind, policy in (
        ("numbers", make_policy(numbers(38))),
        ("mixed", make_policy(mixed())),
        ("hashed, vector", make_policy(later())),
    ):
        context = {feature.name: feature.example for feature in policy.problem.context}
        show(f"{kind}: dict", policy, decide, x=context)
        show(f"{kind}: dict from JSON", policy, decide, x=msgspec.json.decode(msgspec.json.encode(context)))
        show(f"{kind}: dict in another order", policy, decide, x=dict(reversed(context.items())))
        show(f"{kind}: dict, new id", policy, "policy.decide(x)", x=context)
        restricted = "policy.decide(x, id='request-1', eligible=['a1', 'a4'], floor=0.01)"
        show(f"{kind}: dict, eligible, floor", policy, restricted, x=context)
        show(f"{kind}: encoded array", policy, decide, x=policy.problem.encode(context))


def batches() -> None:
    policy, decide = make_policy(numbers(38)), "policy.decide_many(x, ids)"
    encoded = np.random.default_rng(1).random((10_000, 38), dtype=np.float32)
    ids = [f"request-{i}" for i in range(10_000)]
    names = [feature.name for feature in policy.problem.context]
    rows = [dict(zip(names, row, strict=True)) for row in encoded[:1000].tolist()]
    show("batch of 10,000, encoded", policy, decide, 10_000, x=encoded, ids=ids)
    show("batch of 1,000 dicts", policy, decide, 1000, x=rows, ids=ids[:1000])


def growth() -> None:
    decide, row = "policy.decide(x, id='request-1')", np.full(38, 0.5, np.float32)
    for size in (10, 100, 300, 1000):
        show(f"array, {size} features", make_policy(numbers(size)), decide, x=np.full(size, 0.5, np.float32))
    for size in (2, 100, 1000, 10_000):
        show(f"array, {size} actions", make_policy(numbers(38), actions=size), decide, x=row)
    for size in (10, 30, 300, 1000):
        show(f"array, hidden layers of {size}", make_policy(numbers(38), width=size), decide, x=row)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--growth", action="store_true", help="also measure growth with features, actions and width")
    options = parser.parse_args()
    print(f"native kernel ({_native.INSTRUCTIONS}) and NumPy {np.__version__}")
    print(f"{'38 features, 2x100 tanh, 7 actions':36}{'native us':>9} {'(best)':>8}{'numpy us':>10}{'ratio':>10}")
    one_decision()
    batches()
    if options.growth:
        growth()


if __name__ == "__main__":
    main()
