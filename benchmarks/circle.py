"""End to end at full size: log → lake → join → update, with time, memory and bytes.

    python benchmarks/circle.py                               # a million decisions, a few minutes on two cores
    python benchmarks/circle.py --decisions 100000 300000 1000000 --teachers linear-ts neural-linear-ts

38 features, 7 actions; four in five decisions get a reward. Each stage runs in its own process; the table shows its
peak memory. The baseline of the same run is Polars alone: with the rows of both tables in memory, it writes them to
Parquet, reads them back and joins them once.
"""

import argparse
import datetime as dt
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

FEATURES, ACTIONS, REWARDED = 38, 7, 0.8
HOUR = 3_600_000_000
BEGIN = 20_000 * 24 * HOUR
PER_GROUP = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decisions", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--teachers", nargs="+", default=["linear-ts", "neural-linear-ts"])
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.stage:
        print(json.dumps({**STAGES[given.stage](given.folder, given.decisions[0]), "mb": _peak_mb()}))
        return
    for n in given.decisions:
        _circle(n, given.teachers)


def _circle(n: int, teachers: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "workspace"
        _make(place, teachers[0])
        print(f"\n{n:,} decisions, {FEATURES} features, {ACTIONS} actions; {REWARDED:.0%} with a reward")
        print(f"{'stage':28}{'seconds':>9}{'rows/s':>12}{'peak MB':>9}  bytes")
        logged = _stage("log", place, n)
        _row("decide and log", n, logged, f"{logged['bytes'] / logged['events']:.0f} per event in the log")
        flushed = _stage("flush", place, n)
        _row("log → lake", n, flushed, f"{flushed['bytes'] / logged['events']:.0f} per event in the lake")
        joined = _stage("join", place, n)
        _row("join", n, joined)
        for teacher in teachers:
            _config(place, teacher)
            updated = _stage("update", place, n)
            _row(f"update, {teacher}", n, updated, updated["note"])
        bound = _stage("polars", place, n)
        _row("Polars alone, in memory", n, bound)
        own = flushed["seconds"] + joined["seconds"]
        print(f"log → lake and join take {own / bound['seconds']:.1f} times as long as Polars alone")


def _row(name: str, n: int, found: dict[str, Any], note: str = "") -> None:
    print(f"{name:28}{found['seconds']:9.1f}{n / found['seconds']:12,.0f}{found['mb']:9,.0f}  {note}", flush=True)


def _stage(name: str, place: Path, n: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--stage", name, "--folder", str(place), "--decisions", str(n)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _make(place: Path, teacher: str) -> None:
    import msgspec
    import tomli_w

    import potstill as ps
    from potstill.workspace import Workspace

    problem = ps.Problem(
        name="circle",
        context=[ps.Numeric(f"feature_{i}", low=0, high=1) for i in range(FEATURES)],
        actions=ps.Discrete([f"action_{a}" for a in range(ACTIONS)]),
    )
    Workspace.create(place, tomli_w.dumps(msgspec.to_builtins(problem)).encode(), b"")
    _config(place, teacher)


def _config(place: Path, teacher: str) -> None:
    (place / "potstill.toml").write_text(f'[teacher]\ntype = "{teacher}"\n')


# ---- stages, each in its own process


def _log(place: Path, n: int) -> dict[str, Any]:
    from potstill.events import LoggedDecision, LoggedReward
    from potstill.workspace import Workspace

    workspace = Workspace(place)
    policy = workspace.start()
    started = time.perf_counter()
    events = 0
    with workspace.event_log() as log:
        pending = []
        for i, (context, lucky) in enumerate(_requests(n)):
            decision = policy.decide(context, id=f"request-{i:09}")
            moment = BEGIN + i * 86_400
            pending.append(log.submit(LoggedDecision.of(decision, context, time=moment)))
            if lucky < REWARDED:
                reward = LoggedReward(id=decision.id, reward=context["feature_0"] + lucky, time=moment + HOUR // 2)
                pending.append(log.submit(reward))
            if len(pending) >= PER_GROUP:
                events += _wait(pending)
        events += _wait(pending)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "events": events, "bytes": _size(workspace.spool)}


def _wait(pending: list[Any]) -> int:
    for commit in pending:
        commit.wait()
    count = len(pending)
    pending.clear()
    return count


def _requests(n: int) -> Iterator[tuple[dict[str, float], float]]:
    rng = np.random.default_rng(0)
    names = [f"feature_{i}" for i in range(FEATURES)]
    while True:
        rows, noise = rng.random((PER_GROUP, FEATURES)).round(4).tolist(), rng.random(PER_GROUP).tolist()
        yield from islice(((dict(zip(names, row, strict=True)), u) for row, u in zip(rows, noise, strict=True)), n)
        n -= PER_GROUP
        if n <= 0:
            return


def _flush(place: Path, n: int) -> dict[str, Any]:
    from potstill.events.lake import Flusher
    from potstill.events.wal import Spool
    from potstill.workspace import Workspace

    workspace = Workspace(place)
    started = time.perf_counter()
    report = Flusher(Spool(workspace.spool), workspace.lake).flush()
    assert report.decisions == n, report
    return {
        "seconds": time.perf_counter() - started,
        "bytes": _size(place / "events" / "decisions") + _size(place / "events" / "rewards"),
    }


def _join(place: Path, n: int) -> dict[str, Any]:
    from potstill.events.join import join
    from potstill.workspace import Workspace

    workspace = Workspace(place)
    started = time.perf_counter()
    late = BEGIN + n * 86_400 + 3 * HOUR
    report = join(workspace.lake, workspace.cuts, workspace.problem, aggregate="last", settle=60, now=late)
    assert report.decisions == n, report
    return {"seconds": time.perf_counter() - started}


def _update(place: Path, n: int) -> dict[str, Any]:
    from potstill.pipeline.update import run_update
    from potstill.workspace import Workspace

    started = time.perf_counter()
    report = run_update(Workspace(place))
    assert report.observations == n, report
    assert report.still is not None
    took = ", ".join(f"{step} {seconds:.1f} s" for step, seconds in report.seconds.items() if seconds >= 0.05)
    return {"seconds": time.perf_counter() - started, "note": f"{took}; KL {report.still.fidelity.kl_mean:.4f}"}


def _polars(place: Path, n: int) -> dict[str, Any]:
    import polars as pl

    from potstill.workspace import Workspace

    lake = Workspace(place).lake
    decisions, rewards = lake.scan("decisions").collect(), lake.scan("rewards").collect()
    started = time.perf_counter()
    decisions.write_parquet(place / "decisions.parquet")
    rewards.write_parquet(place / "rewards.parquet")
    decisions, rewards = (pl.scan_parquet(place / f"{name}.parquet") for name in ("decisions", "rewards"))
    window = pl.col("time_right").is_between(pl.col("time"), pl.col("time") + dt.timedelta(hours=1))
    best = decisions.join(rewards, on="id", how="left").filter(window.fill_null(True)).sort("time", "id")
    best.sink_parquet(place / "joined.parquet")
    assert pl.scan_parquet(place / "joined.parquet").select(pl.len()).collect().item() == n
    return {"seconds": time.perf_counter() - started}


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


STAGES = {"log": _log, "flush": _flush, "join": _join, "update": _update, "polars": _polars}

if __name__ == "__main__":
    main()
