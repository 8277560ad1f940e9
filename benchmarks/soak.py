"""Soak test: a service at constant load with updates, policy swaps and compaction; are memory and files flat?

    python benchmarks/soak.py --minutes 60             # half of what the machine sustains
    python benchmarks/soak.py --minutes 2 --rate 500

`potstill serve --update-every 30s` runs on the example workspace in a temporary folder, on loopback. A client in a
process of its own decides and rewards. Every two minutes a version is rolled back, and unpinned 30 seconds later; every
five minutes the lake is compacted. Memory, descriptors, threads and files are sampled every ten seconds. At the end
everything is flushed and joined, and what was acknowledged is compared with the observations.

Flat means: a slope, after the first five minutes (a fifth of a shorter run), of less than 5 % of the level per hour, or
within two of its standard errors. Some counts grow by design, one by one with versions, cuts and commits; they are
shown and not judged: the registry keeps every version, `vacuum` deletes files that compaction replaced after an hour at
the earliest, and Delta Lake keeps commits for 30 days.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from soak_load import ACKNOWLEDGED, ACTIONS, CONNECTIONS, NONE, PROBLEM, reward_of
from soak_samples import Sampler, Slope

from potstill.clock import now
from potstill.pipeline import run_update
from potstill.workspace import Workspace, template

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from service_process import Running, serving

WINDOW, SETTLE = 20, 5
CONFIG = f"""
[student]
hidden = [16]
[join]
settle = "{SETTLE}s"
[policy]
floor = 0.02
[log]
rotate_seconds = 5.0
[serve]
remember = "2m"
"""
SAMPLE, SHOW, SWAP, COMPACT = 10, 60, 120, 300
#: Measurements that must be flat, by their names. PSS depends on the number of processes that share a library.
JUDGED = re.compile(r"(parent|worker \d+|flusher|updater): (?!PSS)|log: |watermarks: ")
FLAT = 0.05


class Result(NamedTuple):
    """Comparison of observations with acknowledgements.

    Attributes:
        acknowledged: Number of acknowledged decisions.
        rewards: Number of their acknowledged rewards.
        learnt: Number of observations.
        faults: Number of each kind of fault.
        unknown: Number of decisions whose reward was sent, and either not acknowledged or nearly too late.
    """

    acknowledged: int
    rewards: int
    learnt: int
    faults: dict[str, int]
    unknown: int


def make_workspace(folder: Path) -> Workspace:
    problem = template.PROBLEM.replace('window = "1h"', f'window = "{WINDOW}s"')
    return Workspace.create(str(folder), problem.encode(), CONFIG.encode())


def admin(running: Running, action: str) -> None:
    """Call an endpoint of the administrator; a refusal, such as nothing to roll back to, is printed."""
    status, reply = running.ask("POST", f"/v1/{PROBLEM}/admin/{action}", {"reason": "soak", "by": "benchmark"})
    if status != 200:
        print(f"{action}: {status} {reply}")


def compact(workspace: Workspace) -> None:
    command = ["nice", "-n", "10", sys.executable, "-m", "potstill.cli", "events", "compact", workspace.url, "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    told = done.stderr.strip() or ", ".join(
        f"{one['table']} {one['files_before']} -> {one['files_after']}" for one in json.loads(done.stdout)
    )
    print(f"compacted, live files: {told}", flush=True)


def run(running: Running, workspace: Workspace, load: subprocess.Popen[str]) -> Sampler:
    """Sample, swap and compact until the load has ended."""
    sampler = Sampler(running.process.pid, Path(workspace.url))
    tasks: list[tuple[float, float, Callable[[], None]]] = [  # next time, interval, what
        (0, SAMPLE, sampler.sample),
        (SHOW, SHOW, lambda: print(sampler.table(), flush=True)),
        (SWAP, SWAP, lambda: admin(running, "rollback")),
        (SWAP + 30, SWAP, lambda: admin(running, "unpin")),
        (COMPACT, COMPACT, lambda: compact(workspace)),
    ]
    start = time.monotonic()
    while load.poll() is None:
        for place, (due, interval, task) in enumerate(tasks):
            if time.monotonic() - start >= due:
                tasks[place] = (due + interval, interval, task)
                try:
                    task()
                except (OSError, http.client.HTTPException) as error:
                    print(f"failed: {error}", flush=True)
        time.sleep(0.2)
    return sampler


def acknowledged(result: Path) -> pl.DataFrame:
    """What the client recorded, one row for each decision."""
    with np.load(result) as found:
        frames = [
            pl.DataFrame({"action": found[f"actions-{name}"], "state": found[f"rewards-{name}"]})
            .with_row_index("number")
            .with_columns(id=pl.format(f"soak-{name}-{{}}", "number"))
            for name in range(CONNECTIONS)
        ]
        print(f"requests that were repeated: {found['failures']}")
    return pl.concat(frames)


def compare(workspace: Workspace, result: Path) -> Result:
    sent = acknowledged(result)
    expected = sent.filter(pl.col("action") > 0)
    observed = workspace.lake.scan("observations").select("id", "action", "reward", "rewarded").collect()
    joined = expected.join(observed.unique("id"), on="id", suffix="_learnt")
    value = reward_of(pl.col("number"))
    timely = joined.filter(pl.col("state") == ACKNOWLEDGED)
    silent = joined.filter(pl.col("state") == NONE)
    names = pl.Series(ACTIONS)[(joined["action"] - 1).cast(pl.UInt32)]
    faults = {
        "decisions lost": len(expected) - len(joined),
        "decisions doubled": len(observed) - observed["id"].n_unique(),
        "decisions with another action": int((joined["action_learnt"] != names).sum()),
        "rewards wrongly defaulted": int((~timely["rewarded"]).sum()),
        "rewards changed": len(timely.filter(pl.col("rewarded") & ((pl.col("reward") - value).abs() > 1e-9))),
        "rewards made up": int(silent["rewarded"].sum()),
    }
    rewards = int((expected["state"] == ACKNOWLEDGED).sum())
    unknown = len(expected.filter(pl.col("state") > ACKNOWLEDGED))
    return Result(len(expected), rewards, len(observed), faults, unknown)


def is_flat(slope: Slope) -> bool:
    return abs(slope.per_hour) <= max(FLAT * abs(slope.first), 2 * slope.error)


def judge(slopes: list[Slope]) -> bool:
    """Print every slope and whether what must be flat is."""
    print(f"\n{'':32}{'first':>10}{'last':>10}{'per hour':>14}")
    flat = True
    for slope in slopes:
        judged = JUDGED.match(slope.name) is not None
        verdict = ("flat" if is_flat(slope) else "NOT FLAT") if judged else "grows by design"
        flat = flat and (not judged or is_flat(slope))
        error = f"{slope.per_hour:+.1f} ± {slope.error:.1f}"
        print(f"{slope.name:32}{slope.first:10.1f}{slope.last:10.1f}{error:>16}  {verdict}")
    return flat


def soak(folder: Path, options: argparse.Namespace) -> int:
    workspace, result, seconds = make_workspace(folder / "workspace"), folder / "load.npz", options.minutes * 60
    arguments = [workspace.url, "--workers", options.workers, "--update-every", options.update_every]
    with serving(folder / "out", *arguments, **dict(pair.split("=", 1) for pair in options.env)) as running:
        script = str(Path(__file__).with_name("soak_load.py"))
        command = [running.port, options.rate, seconds, WINDOW - 2, result]
        load = subprocess.Popen([sys.executable, script, *map(str, command)], text=True)
        try:
            sampler = run(running, workspace, load)
        finally:
            if load.poll() is None:
                load.terminate()
                load.wait()
        print(f"exit code of the service: {running.stop()}; of the client: {load.returncode}")
        print(f"lines that the service printed as errors: {len(running.errors.splitlines())}")
        print(running.errors[-2000:])
    end = now() + (WINDOW + SETTLE + 2) * 1_000_000
    time.sleep((end - now()) / 1e6)
    report = run_update(workspace, force=True, wait=True)
    print(f"last update: {report.outcome}, pending {report.joined.pending if report.joined else 'unknown'}")
    found = compare(workspace, result)
    flat = judge(sampler.slopes(min(300.0, seconds / 5)))
    print(
        f"\nacknowledged: {found.acknowledged:,} decisions, {found.rewards:,} timely rewards; learnt: {found.learnt:,}"
    )
    print(f"left out of the comparison, since it is not known whether their reward was in time: {found.unknown}")
    for fault, count in found.faults.items():
        print(f"{fault:32}{count}")
    print(f"{len(workspace.registry.versions())} versions; " + ("flat" if flat else "NOT FLAT"))
    return 0 if flat and not any(found.faults.values()) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="duration of the load")
    parser.add_argument("--rate", type=float, default=0, help="decisions per second; 0: half of what is measured first")
    parser.add_argument("--workers", type=int, default=2, help="workers of the service")
    parser.add_argument("--update-every", default="30s", help="time between two updates")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="variables of the service")
    parser.add_argument("--folder", default=None, help="folder for the temporary workspace; on a disk")
    options = parser.parse_args()
    os.environ["PYTHONUNBUFFERED"] = "1"
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        return soak(Path(place), options)


if __name__ == "__main__":
    sys.exit(main())
