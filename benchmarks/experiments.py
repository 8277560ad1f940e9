"""Experiments: coverage of the intervals, and time to read and analyse a large experiment.

    python benchmarks/experiments.py                  # 2,000 simulated experiments for each line, some minutes
    python benchmarks/experiments.py --size 10 1      # 10 million decisions of 1 million units, read and analysed

Units return, and rewards are skewed: Poisson with a rate per unit, and a few heavy users. Each line shows how often
intervals of level 0.95 missed the true value, and in brackets the range of 95 % of benchmark runs at nominal coverage.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
from scipy import stats

from potstill.experiments.analysis import Before, Daily, Units, analyse, power_of, units_needed
from potstill.experiments.analysis.breakdowns import by_day
from potstill.experiments.analysis.cuped import covariates
from potstill.experiments.analysis.effects import Measured, effect
from potstill.experiments.analysis.read import read_units

DAY = 86_400_000_000
START = 20_773 * DAY
RATE = 0.4


def units(rng: np.random.Generator, n: int, lift: float = 0.0, share: float = 0.5) -> Units:
    treated, rate = rng.random(n) < share, rng.gamma(2, RATE / 2, n)
    decisions = 1.0 + rng.poisson(rng.gamma(1, 3, n))
    earlier = rng.poisson(3, n).astype(np.float64)
    return Units(
        treated=treated,
        decisions=decisions,
        outcomes={"reward": rng.poisson((rate + lift * treated) * decisions)},
        before=Before(earlier, {"reward": rng.poisson(rate * earlier).astype(np.float64)}),
        segment=rng.choice(["a", "b", "c", "d", "e"], n),
    )


def missed(made: Units, *, per_decision: bool = True, past: bool = False, relative: float | None = None) -> bool:
    known = covariates(made.before, "reward", per_decision=per_decision) if past else None
    found = effect(made.treated, made.outcomes["reward"], made.decisions if per_decision else None, known)
    assert found is not None
    measured = Measured.of(found, 0.95)
    if relative is None:
        return not measured.interval.low <= 0 <= measured.interval.high
    assert measured.relative_interval is not None
    return not measured.relative_interval.low <= relative <= measured.relative_interval.high


def found_in_a_segment(made: Units) -> bool:
    segments = analyse(made, by="kind").segments
    assert segments is not None
    return any(one.p is not None and one.p < 0.05 for one in segments.segments)


def effects_differ(made: Units) -> bool:
    segments = analyse(made, by="kind").segments
    assert segments is not None
    return segments.p is not None and segments.p < 0.05


def coverage(runs: int) -> None:
    lines: dict[str, Callable[[np.random.Generator], bool]] = {
        "per unit (Welch), 400 units": lambda rng: missed(units(rng, 400), per_decision=False),
        "per unit, 40 units": lambda rng: missed(units(rng, 40), per_decision=False),
        "per decision (delta method), 400 units": lambda rng: missed(units(rng, 400)),
        "per decision, 10 % in treatment, 1,000 units": lambda rng: missed(units(rng, 1000, share=0.1)),
        "per decision, CUPED, 400 units": lambda rng: missed(units(rng, 400), past=True),
        "per decision, CUPED, 10 % in treatment, 1,000 units": lambda rng: missed(
            units(rng, 1000, share=0.1), past=True
        ),
        "relative (Fieller), true +25 %, CUPED, 400 units": lambda rng: missed(
            units(rng, 400, RATE / 4), past=True, relative=0.25
        ),
        "per unit, CUPED, 400 units": lambda rng: missed(units(rng, 400), per_decision=False, past=True),
        "per unit, CUPED, 10 % in treatment, 1,000 units": lambda rng: missed(
            units(rng, 1000, share=0.1), per_decision=False, past=True
        ),
        "per unit, 10 % in treatment, 1,000 units": lambda rng: missed(units(rng, 1000, share=0.1), per_decision=False),
        "any of 5 segments (Holm), 1,000 units": lambda rng: found_in_a_segment(units(rng, 1000)),
        "effects differ between 5 segments, 1,000 units": lambda rng: effects_differ(units(rng, 1000)),
    }
    for number, (name, one) in enumerate(lines.items()):
        rng = np.random.default_rng([1, number])
        tell(name, sum(one(rng) for _ in range(runs)), runs)


def tell(name: str, misses: int, runs: int, rate: float = 0.05) -> None:
    low, high = stats.binom.interval(0.95, runs, rate)
    print(f"{name:56} {100 * misses / runs:5.1f} %   ({100 * low / runs:.1f} to {100 * high / runs:.1f} %)", flush=True)


def peeking(runs: int) -> None:
    """Experiments without effect under repeated looks: how many ever appear to have one."""
    worlds: dict[str, Callable[[np.random.Generator], tuple[np.ndarray, Daily, np.ndarray | None]]] = {
        "units with one visit, a look after every 25 of 2,500": lambda rng: arriving(rng, past=False),
        "the same, CUPED": lambda rng: arriving(rng, past=True),
        "400 returning units, 28 daily looks": lambda rng: returning(rng),
    }
    for number, (name, world) in enumerate(worlds.items()):
        rng, anytime, once = np.random.default_rng([2, number]), 0, 0
        for _ in range(runs):
            treated, daily, past = world(rng)
            shown = by_day(treated, daily, past, per_decision=True, level=0.95, planned=1_000)
            anytime += any(not one.measured.anytime.low <= 0 <= one.measured.anytime.high for one in shown)
            once += any(not one.measured.interval.low <= 0 <= one.measured.interval.high for one in shown)
        print(
            f"{name:56} {100 * anytime / runs:5.1f} %   (interval for one look: {100 * once / runs:.1f} %)", flush=True
        )


def arriving(rng: np.random.Generator, *, past: bool) -> tuple[np.ndarray, Daily, np.ndarray | None]:
    made = units(rng, 2500)
    order = np.arange(2500)
    known = covariates(made.before, "reward", per_decision=True) if past else None
    return made.treated, Daily(order, order // 25, made.decisions, made.outcomes["reward"]), known


def returning(rng: np.random.Generator) -> tuple[np.ndarray, Daily, np.ndarray | None]:
    habits, decisions = rng.beta(1, 2, 400), rng.poisson(0.7, (28, 400))
    day, unit = np.nonzero(decisions)
    counts = decisions[day, unit]
    daily = Daily(unit, day, counts.astype(np.float64), rng.binomial(counts, habits[unit]).astype(np.float64))
    return rng.random(400) < 0.5, daily, None


def power(runs: int) -> None:
    """Experiments of the planned size on skewed units; the variance comes from a large sample of them."""
    from potstill.experiments.analysis.effects import linearised

    large = units(np.random.default_rng(3), 400_000)
    sd = float(linearised(large.outcomes["reward"], large.decisions).std())
    for relative in (0.1, 0.25):
        needed = units_needed(relative * RATE, sd)
        rng, found = np.random.default_rng(4), 0
        for _ in range(runs):
            made = units(rng, needed, relative * RATE)
            one = effect(made.treated, made.outcomes["reward"], made.decisions)
            found += one is not None and one.p < 0.05 and one.difference > 0
        planned = power_of(needed, relative * RATE, sd)
        tell(f"power of {needed:,} units planned for +{100 * relative:.0f} %", found, runs, planned)


def write_log(folder: Path, decisions: int, count: int) -> None:
    """Observations of an experiment over four weeks, and four weeks before it, in files of a million rows."""
    rng, rows = np.random.default_rng(5), 1_000_000
    habits = rng.beta(2, 3, count)
    for number in range(0, decisions, rows):
        n = min(rows, decisions - number)
        who, times = rng.integers(0, count, n), START + np.sort(rng.integers(-28 * DAY, 28 * DAY, n))
        treated, inside = who % 2 > 0, times >= START
        reward = (rng.random(n) < habits[who] + 0.01 * (treated & inside)).astype(np.float64)
        arms = np.where(treated, "big:treatment", "big:control")
        metrics = pl.DataFrame({"name": np.full(n, "watched"), "value": reward * rng.gamma(4, 15, n)})
        pl.DataFrame(
            {
                "id": np.arange(number, number + n).astype(str),
                "time": pl.Series(times).cast(pl.Datetime("us", "UTC")),
                "unit": pl.Series(who).cast(pl.String).str.zfill(16),
                "arm": pl.Series(arms).set(pl.Series(~inside), None),
                "reward": reward,
                "metrics": metrics.select(pl.concat_list(pl.struct("name", "value"))).to_series(),
                "kind": np.take(["a", "b", "c"], who % 3),
            }
        ).write_parquet(folder / f"part-{number}.parquet")


def size(decisions: int, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_log(Path(folder), decisions, count)
        subprocess.run([sys.executable, __file__, "--read", folder], check=True)


def read(folder: str) -> None:
    started = time.process_time()
    rows = pl.scan_parquet(Path(folder) / "*.parquet")
    made = read_units(rows, "big", start=START, by="kind")
    seconds = time.process_time() - started
    report = analyse(made, experiment="big", share=0.5, by="kind")
    print(report.verdict.sentence)
    decisions = report.decisions.control + report.decisions.treatment
    print(f"{decisions:,} decisions of {made.units:,} units in the experiment")
    print(f"read in {seconds:.1f} s and analysed in {time.process_time() - started - seconds:.1f} s of processor time")
    print(f"peak memory {peak():.2f} GB")


def peak() -> float:
    """Peak memory in GB. `getrusage` would include the process that started this one."""
    (line,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    return int(line) / 1e6


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument(
        "--size", type=float, nargs=2, metavar=("DECISIONS", "UNITS"), help="size of the experiment, in millions"
    )
    parser.add_argument("--read", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    wanted = arguments()
    if wanted.read:
        read(wanted.read)
    elif wanted.size:
        size(*(round(millions * 1e6) for millions in wanted.size))
    else:
        print("miss rate of intervals of level 0.95; in brackets, range at nominal coverage", flush=True)
        coverage(wanted.runs)
        print("\nfalse positives under repeated looks, no effect", flush=True)
        peeking(wanted.runs)
        print("\npower at the planned size; in brackets, range if the plan is right", flush=True)
        power(wanted.runs)


if __name__ == "__main__":
    main()
