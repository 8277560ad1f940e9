"""The out-of-core join: seconds, decisions per second and peak memory, and an incremental run over 1% new data.

    python benchmarks/join.py                       # 1 million decisions
    python benchmarks/join.py --decisions 1 3 10    # millions; about 6 GB of disk and 10 minutes on two cores

Decisions with 38 features over five days, and rewards within the hour for 60% of them, are appended to a lake in
commits of 100,000 rows. The baselines are a plain Polars join (everything in memory, one join, no handling of
duplicates or of earlier joins) and, if installed, DuckDB. If Ray is installed, the join also runs on it with a worker
per core; its start, about 5 s, is in the processor time and not in the seconds.

Every step runs in its own process and is measured with its child processes; shared memory counts once. Files are in the
page cache for all steps. Ratios are of processor time, which other work on the machine distorts less than the wall
clock.
"""

import argparse
import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
from scale import Watched

import potstill as ps
from potstill.events.join import join
from potstill.events.lake import Lake, read_observations
from potstill.parallel import Map
from potstill.pipeline.engines import open_engine
from potstill.storage import LocalStorage
from potstill.tables import TIME

SECOND, DAY = 1_000_000, 86_400_000_000
#: Times of decisions: five days, and 1% more after that.
BASE = (19_700 * DAY, 19_705 * DAY)
MORE = (19_705 * DAY, 19_705 * DAY + DAY // 20)
COMMIT = 100_000
WINDOW, SETTLE = 3600, 60
LEVELS = [f"level-{i}" for i in range(8)]
NUMBERS, CATEGORIES, FLAGS = 30, 6, 2
ACTIONS = [f"action-{i}" for i in range(7)]

PROBLEM = ps.Problem(
    name="join-benchmark",
    context=[
        *(ps.Numeric(f"number_{i}", low=0, high=1) for i in range(NUMBERS)),
        *(ps.Categorical(f"category_{i}", LEVELS) for i in range(CATEGORIES)),
        *(ps.Boolean(f"flag_{i}") for i in range(FLAGS)),
    ],
    actions=ps.Discrete(ACTIONS),
    reward=ps.Reward(default=0.0, window=f"{WINDOW}s"),
)


def decisions(first: int, count: int, span: tuple[int, int], rng: np.random.Generator) -> pl.DataFrame:
    times = np.sort(rng.integers(*span, count))
    columns: dict[str, object] = {
        "id": ids(first, count),
        "time": pl.Series(times).cast(TIME),
        "action": np.take(ACTIONS, rng.integers(0, len(ACTIONS), count)),
        "propensity": rng.uniform(0.05, 1, count),
        "policy": np.ones(count, np.int64),
        "problem": np.full(count, PROBLEM.hash),
    }
    columns |= {f"context_number_{i}": rng.uniform(0, 1, count) for i in range(NUMBERS)}
    columns |= {f"context_category_{i}": np.take(LEVELS, rng.integers(0, 8, count)) for i in range(CATEGORIES)}
    columns |= {f"context_flag_{i}": rng.integers(0, 2, count) > 0 for i in range(FLAGS)}
    return pl.DataFrame(columns)


def ids(first: int, count: int) -> pl.Series:
    """Ids as long as a UUID, in random order."""
    numbers = pl.Series(np.arange(first, first + count))
    return (numbers.hash(1).cast(pl.String).str.zfill(20) + "-" + numbers.cast(pl.String).str.zfill(11)).alias("id")


def rewards(decided: pl.DataFrame, rng: np.random.Generator) -> pl.DataFrame:
    chosen = decided.select("id", "time").filter(rng.uniform(0, 1, len(decided)) < 0.6)
    delay = pl.Series((rng.uniform(0, 1, len(chosen)) ** 2 * WINDOW * SECOND).astype(np.int64))
    return chosen.with_columns(
        time=(chosen["time"].cast(pl.Int64) + delay).cast(TIME),
        reward=pl.Series(rng.normal(0, 1, len(chosen))),
        key=pl.lit(None, pl.String),
    ).sort("time")


class Place:
    """A lake and its cuts in a folder, its initial number of decisions, and the function that maps a join's parts."""

    def __init__(self, folder: Path, count: int, each: Map) -> None:
        self.folder, self.count, self.each = folder, count, each
        self.lake, self.cuts = Lake(folder / "events", PROBLEM), LocalStorage(folder / "cuts")

    def fill(self, first: int, count: int, span: tuple[int, int]) -> None:
        """Append the decisions of a time span and their rewards, as a flusher would."""
        rng = np.random.default_rng(first)
        step = (span[1] - span[0]) * min(COMMIT, count) // count
        for i in range(0, count, COMMIT):
            begin = span[0] + step * (i // COMMIT)
            rows = decisions(first + i, min(COMMIT, count - i), (begin, begin + step), rng)
            self.lake.append("decisions", rows, writer="benchmark", number=first + i + 1)
            self.lake.append("rewards", rewards(rows, rng), writer="benchmark", number=first + i + 1)


def final(span: tuple[int, int]) -> int:
    return span[1] + (WINDOW + SETTLE) * SECOND


def write(place: Place) -> int:
    place.fill(0, place.count, BASE)
    return place.count


def write_more(place: Place) -> int:
    place.fill(place.count, place.count // 100, MORE)
    return place.count // 100


def first_join(place: Place) -> int:
    shutil.rmtree(place.folder / "events" / "observations", ignore_errors=True)  # of a join on another engine
    shutil.rmtree(place.folder / "cuts", ignore_errors=True)
    return _join(place, final(BASE))


def second_join(place: Place) -> int:
    return _join(place, final(MORE))


def _join(place: Place, now: int) -> int:
    report = join(place.lake, place.cuts, PROBLEM, aggregate="last", settle=SETTLE, now=now, each=place.each)
    assert report.rewards.orphans == report.rewards.late == report.duplicates == report.unfit == 0, report
    return report.decisions


def read_observed(place: Place) -> int:
    return sum(len(chunk) for chunk in read_observations(place.lake, PROBLEM, 0, 1))


def naive_polars(place: Place) -> int:
    lake = place.lake
    decided = lake.scan("decisions")
    delay = (pl.col("time") - pl.col("decided")).dt.total_microseconds()
    pairs = lake.scan("rewards").join(decided.select("id", decided="time"), on="id")
    last = (
        pairs.filter(delay >= 0, delay <= WINDOW * SECOND).group_by("id").agg(pl.col("reward").sort_by("time").last())
    )
    joined = decided.join(last, on="id", how="left").with_columns(pl.col("reward").fill_null(0.0)).sort("time", "id")
    frame = joined.collect()
    frame.write_parquet(place.folder / "naive.parquet", compression="zstd", compression_level=1)
    return len(frame)


def naive_duckdb(place: Place) -> int:
    import duckdb

    tables = {name: str([file.uri for file in place.lake.files(name)]) for name in ("decisions", "rewards")}
    joined = f"""
        SELECT d.*, coalesce(r.reward, 0.0) AS reward FROM read_parquet({tables["decisions"]}) d LEFT JOIN (
            SELECT r.id, arg_max(r.reward, r.time) AS reward
            FROM read_parquet({tables["rewards"]}) r JOIN read_parquet({tables["decisions"]}) d USING (id)
            WHERE r.time BETWEEN d.time AND d.time + INTERVAL {WINDOW} SECOND GROUP BY r.id
        ) r USING (id) ORDER BY d.time, d.id"""
    done = duckdb.sql(f"COPY ({joined}) TO '{place.folder / 'duckdb.parquet'}' (COMPRESSION zstd, COMPRESSION_LEVEL 1)")
    return place.count if done is None else len(done)


STEPS: dict[str, Callable[[Place], int]] = {
    "naive polars": naive_polars,
    "naive duckdb": naive_duckdb,
    "join on ray": first_join,
    "join": first_join,
    "observed": read_observed,
    "write 1% more": write_more,
    "join of the 1%": second_join,
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--decisions", type=float, nargs="+", default=[1], help="decisions, in millions")
    arguments.add_argument("--folder", type=Path, help="folder for the lakes; temporary by default")
    arguments.add_argument("--step", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.step:
        print(json.dumps(measure(given.step, given.folder, round(given.decisions[0]))))
        return
    print("millions  step                    rows  seconds  processor     rows/s  peak MB  against join")
    for millions in given.decisions:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            run(Path(folder), round(millions * 1e6))


def run(folder: Path, count: int) -> None:
    apart(folder, "write", count)
    missing = [name for name in ("duckdb", "ray") if not importlib.util.find_spec(name)]
    lines = [apart(folder, step, count) for step in STEPS if not step.endswith(tuple(missing))]
    ours = next(line for line in lines if line["step"] == "join")
    for line in lines:
        ratio = {name: line[name] / ours[name] for name in ("processor", "megabytes")}
        print(
            f"{count / 1e6:>8g}  {line['step']:<16}{line['rows']:>12,}{line['seconds']:>9.1f}{line['processor']:>11.1f}"
            f"{line['rows'] / line['seconds']:>11,.0f}{line['megabytes']:>9,.0f}"
            f"  {ratio['processor']:.2f} of the processor time, {ratio['megabytes']:.2f} of the memory",
            flush=True,
        )


def apart(folder: Path, step: str, count: int) -> dict[str, object]:
    """Run one step in its own process."""
    command = [sys.executable, __file__, "--step", step, "--folder", str(folder), "--decisions", str(count)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def measure(step: str, folder: Path, count: int) -> dict[str, object]:
    with Watched() as watched, open_engine("ray" if step.endswith("ray") else "local") as engine:
        started, processor = time.perf_counter(), time.process_time()
        rows = {"write": write, **STEPS}[step](Place(folder, count, engine.map))
        seconds, processor = time.perf_counter() - started, time.process_time() - processor
    others = sum(used for pid, used in watched.processor.items() if pid != os.getpid())
    return {
        "step": step,
        "rows": rows,
        "seconds": seconds,
        "processor": processor + others,
        "megabytes": max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, *watched.megabytes),
    }


if __name__ == "__main__":
    main()
