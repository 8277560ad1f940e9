"""Simulate many seeds, and name those that contradict the invariant.

``python benchmarks/simulation.py --seeds 1000 --first 0 --jobs 2`` goes on after a failure, and ends with status 1 if
there was one. ``--only outages,pauses`` lets only these befall the worlds, ``--without keyless`` all but these.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
import traceback
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1] / "tests")  # not this folder: this file has the name of the package

from simulation.options import QUIET, Options  # noqa: E402
from simulation.world import World  # noqa: E402

#: Seconds between two lines about progress.
EVERY = 30.0


def violations(seed: int, options: Options) -> tuple[int, list[str]]:
    """What one seed contradicts; a crash counts too."""
    try:
        return seed, World(seed, options).run().violations
    except Exception:
        return seed, [traceback.format_exc(limit=-3)]


def chosen(only: str, without: str) -> Options:
    """Options of the worlds."""
    if only:
        return replace(QUIET, **dict.fromkeys(only.split(","), True))
    return replace(Options(), **dict.fromkeys(filter(None, without.split(",")), False))


def report(results: Iterable[tuple[int, list[str]]], seeds: int) -> int:
    """Print failures as they come, and the pace; returns the number of failed seeds."""
    began = last = time.perf_counter()
    failed = 0
    for done, (seed, found) in enumerate(results, 1):
        if found:
            failed += 1
            print(f"seed {seed}:", *found, sep="\n  ", flush=True)
        if time.perf_counter() - last > EVERY or done == seeds:
            last = time.perf_counter()
            pace = done / (last - began)
            print(f"{done} of {seeds} seeds, {failed} failed, {pace:.2f} seeds/s", flush=True)
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default="", help="options that are on, separated by commas; all others are off")
    parser.add_argument("--without", default="", help="options that are off")
    stated = parser.parse_args()
    simulate = partial(violations, options=chosen(stated.only, stated.without))
    seeds = range(stated.first, stated.first + stated.seeds)
    if stated.jobs == 1:
        failed = report(map(simulate, seeds), stated.seeds)
    else:
        with multiprocessing.get_context("spawn").Pool(stated.jobs) as pool:
            failed = report(pool.imap_unordered(simulate, seeds, chunksize=4), stated.seeds)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
