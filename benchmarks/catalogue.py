"""Catalogues: regret where items come and go, and the time of a decision among 100 to 10,000 items.

    python benchmarks/catalogue.py                          # 1,000 items, 20 batches of 500, 5 trials: an hour or two
    python benchmarks/catalogue.py --trials 1 --items 200 --batches 10     # some minutes
    python benchmarks/catalogue.py --decide                 # the time of a decision alone

Before each batch 5 % of the items are replaced. All decide among the new ones at once, and learn at the end of a batch.

- ``catalog-linear-ts``: Thompson sampling by the joint posterior of `CatalogLinearTS`.
- ``catalog-linear-ts-il``: its student of two towers, as a workspace serves it: adapted by the item tower when items
  change, distilled after each batch.
- ``linear-ts``: Thompson sampling with a regression for each item, which knows nothing of features.
- ``vw-squarecb``: Vowpal Wabbit, ``--cb_explore_adf --squarecb`` on features and ids; also with ``--gamma_scale 100``
  and ``1000``, since its default of 10 explores a lot where there are many items.

Prints regret per decision after the first batch, which is uniform for all, relative to uniform decisions, with the
standard error over trials. Times are processor time: wall-clock time beside other work means nothing.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from functools import partial

import numpy as np

import potstill as ps
from potstill.lab.studies.catalogue import AGENTS, CatalogueSpec, CatalogueWorld, ItemsAgent, regret
from potstill.policy import Layer
from potstill.problem import Problem

Make = Callable[[Problem, int], ItemsAgent]


def agents() -> dict[str, Make]:
    """All agents; those of Vowpal Wabbit if it is installed."""
    found: dict[str, Make] = dict(AGENTS)
    try:
        from potstill.lab.peers import vowpal_items
    except ImportError:
        print("without Vowpal Wabbit, which is not installed: pip install potstill[peers]")
        return found
    for scale in (10, 100, 1000):
        name = "vw-squarecb" if scale == 10 else f"vw-squarecb-{scale}"
        found[name] = partial(vowpal_items.make, arguments=f"--squarecb --gamma_scale {scale}")
    return found


def compare(spec: CatalogueSpec, trials: int, names: list[str]) -> None:
    """Print regret of all agents in the same trials."""
    known = agents()
    found: dict[str, list[float]] = {name: [] for name in names or known}
    for trial in range(trials):
        for name, regrets in found.items():
            if name in known:
                began = time.process_time()
                by_batch = regret(CatalogueWorld(spec, trial), known[name], trial)
                regrets.append(float(by_batch[1:].mean()))
                curve = " ".join(f"{one:.2f}" for one in by_batch)
                print(
                    f"trial {trial} {name}: {regrets[-1]:.4f} in {time.process_time() - began:.0f} s; {curve}",
                    flush=True,
                )
    base = np.array(found["uniform"]) if "uniform" in found else None
    print(f"{'agent':24}{'regret':>9}{'± se':>8}" + ("" if base is None else f"{'of uniform':>12}"))
    for name, regrets in found.items():
        error = np.std(regrets, ddof=1) / np.sqrt(trials) if trials > 1 else np.nan
        share = "" if base is None else f"{100 * np.mean(regrets) / base.mean():11.1f}%"
        print(f"{name:24}{np.mean(regrets):9.4f}{error:8.4f}{share}")


def decide() -> None:
    """Print processor time of a decision from a dict, and the size of a policy, by the number of items."""
    rng = np.random.default_rng(0)
    print(f"{'items':>8}{'µs':>9}{'MB':>8}{'load ms':>9}")
    for count in (100, 1000, 10_000):
        rows = rng.random((count, 8)).tolist()
        space = ps.Catalog(
            features=[ps.Vector("v", size=8)], items=[{"id": f"item {i}", "v": row} for i, row in enumerate(rows)]
        )
        context = [ps.Numeric("a", low=0, high=1), ps.Numeric("b", low=0, high=1), ps.Categorical("c", ["x", "y"])]
        problem = ps.Problem(name="shop", context=context, actions=space)
        sizes = [problem.width, 100, 100, count]
        layers = [
            Layer(*(0.1 * rng.standard_normal(shape).astype(np.float32) for shape in ((n, m), (m,))))
            for n, m in itertools.pairwise(sizes)
        ]
        data = ps.Policy.build(problem, layers, version=1).to_bytes()
        began = time.process_time()
        policy = ps.Policy.from_bytes(data)
        loaded = time.process_time() - began
        given, number = {"a": 0.3, "b": 0.7, "c": "x"}, 20_000_000 // (count * 100 + 20_000)
        took = []
        for _ in range(5):
            began = time.process_time()
            for i in range(number):
                policy.decide(given, id=f"{i}")
            took.append((time.process_time() - began) / number)
        print(f"{count:8,}{1e6 * min(took):9.1f}{len(data) / 1e6:8.2f}{1e3 * loaded:9.1f}")


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decide", action="store_true", help="the time of a decision alone")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--agents", nargs="*", default=[])
    asked = parser.parse_args()
    if asked.decide:
        decide()
        return
    spec = CatalogueSpec(items=asked.items, churn=max(asked.items // 20, 1), batches=asked.batches, batch=asked.batch)
    compare(spec, asked.trials, asked.agents)


if __name__ == "__main__":
    main()
