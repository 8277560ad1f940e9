"""Crash test of the service: kill its processes under load, then compare the lake with the acknowledgements.

    python benchmarks/service_crash.py                 # a minute: three services, 20 seconds each
    python benchmarks/service_crash.py --rounds 1 --seconds 60

Workers and the flusher get `kill -9` every few tenths of a second; in the end the whole service does. Threads request
decisions, singly and in batches, and report rewards, without retries. Every acknowledged decision and reward must be in
the lake exactly once, decisions with the replied action; others may be there once or not at all.
"""

from __future__ import annotations

import argparse
import http.client
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import polars as pl
from service import FEATURES, NAME, make_workspace

from potstill.events.lake import Flusher
from potstill.events.wal import Spool
from potstill.workspace import Workspace

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from service_process import Running, asked, serving

BATCH, THREADS = 50, 6
CONFIG = "[log]\nrotate_seconds = 0.5\n"
KILLED = ("potstill.service.process.worker", "potstill.service.process.flusher")


class Caller(threading.Thread):
    """Decides and rewards as fast as possible, and records acknowledgements; call `end`, then `join`."""

    def __init__(self, running: Running, name: str) -> None:
        super().__init__()
        self.decided: dict[str, str] = {}
        self.rewarded: list[str] = []
        self.failures = 0
        self._running, self._prefix, self._number = running, name, 0
        self._random, self._ended = random.Random(name), threading.Event()

    def end(self) -> None:
        """Stop sending."""
        self._ended.set()

    def run(self) -> None:
        """Main loop of the thread; reconnects when the connection breaks."""
        while not self._ended.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self._running.port, timeout=10)
            try:
                while not self._ended.is_set():
                    self._call(connection)
            except (OSError, http.client.HTTPException):
                self.failures += 1
                time.sleep(0.02)
            finally:
                connection.close()

    def _call(self, connection: http.client.HTTPConnection) -> None:
        if self._random.random() < 0.5:
            told = [self._ask(connection, "decide", self._request())]
        else:
            batch = {"requests": [self._request() for _ in range(BATCH)]}
            told = self._ask(connection, "decide/batch", batch)["decisions"]
        self.decided |= {decision["id"]: decision["action"] for decision in told}
        ids = [decision["id"] for decision in told]
        self._ask(connection, "reward", {"rewards": [{"id": name, "reward": 0.5} for name in ids]})
        self.rewarded += ids

    def _request(self) -> dict[str, object]:
        self._number += 1
        context = {f"feature_{i}": self._random.random() for i in range(FEATURES)}
        return {"id": f"{self._prefix}-{self._number}", "context": context}

    def _ask(self, connection: http.client.HTTPConnection, path: str, body: object) -> dict[str, object]:
        status, reply = asked(connection, "POST", f"/v1/{NAME}/{path}", body)
        if status not in (200, 202):
            raise http.client.HTTPException(f"{status}: {reply}")
        return reply


def kill_often(running: Running, seconds: float, kills: Counter[str], rng: random.Random) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(rng.uniform(0.1, 0.6))
        there = [(kind, pid) for kind, pids in running.children().items() if kind in KILLED for pid in pids]
        if there:
            kind, pid = rng.choice(there)
            os.kill(pid, signal.SIGKILL)
            kills[kind.rpartition(".")[2]] += 1


def play(workspace: Workspace, folder: Path, number: int, seconds: float, kills: Counter[str]) -> list[Caller]:
    """Run one service from its start until it is killed."""
    with serving(folder, workspace.url, "--workers", 2) as running:
        callers = [Caller(running, f"{number}-{thread}") for thread in range(THREADS)]
        for caller in callers:
            caller.start()
        kill_often(running, seconds, kills, random.Random(number))
        left = [pid for pids in running.children().values() for pid in pids]
        running.process.kill()
        kills["service"] += 1
        for caller in callers:
            caller.end()
        for caller in callers:
            caller.join()
        while any(Path(f"/proc/{pid}").exists() for pid in left):  # requests in flight may still be answered
            time.sleep(0.1)
    return callers


def in_lake(workspace: Workspace, table: str, *columns: str) -> pl.DataFrame:
    return workspace.lake.scan(table).select("id", *columns).collect()


def judge(workspace: Workspace, callers: list[Caller]) -> bool:
    decisions, rewards = in_lake(workspace, "decisions", "action"), in_lake(workspace, "rewards")
    decided = {name: action for caller in callers for name, action in caller.decided.items()}
    rewarded = [name for caller in callers for name in caller.rewarded]
    found = dict(decisions.rows())
    faults = {
        "decisions lost": len(set(decided) - set(found)),
        "decisions doubled": len(decisions) - len(found),
        "decisions with another action": sum(found.get(name, action) != action for name, action in decided.items()),
        "rewards lost": len(set(rewarded) - set(rewards["id"])),
        "rewards doubled": len(rewards) - rewards["id"].n_unique(),
    }
    print(f"acknowledged {len(decided):,} decisions and {len(rewarded):,} rewards")
    print(f"in the lake  {len(decisions):,} and {len(rewards):,}")
    for fault, count in faults.items():
        print(f"{fault:32}{count}")
    return not any(faults.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="number of services, one after the other")
    parser.add_argument("--seconds", type=float, default=20, help="seconds per service")
    options = parser.parse_args()
    kills: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "potstill.toml").write_text(CONFIG)
        workspace = make_workspace(Path(place))
        callers: list[Caller] = []
        for number in range(options.rounds):
            callers += play(workspace, Path(place) / f"out-{number}", number, options.seconds, kills)
        report = Flusher(Spool(workspace.spool), workspace.lake).flush()
        told = ", ".join(f"{count} {kind}" for kind, count in sorted(kills.items()))
        print(f"kill -9: {told}; {sum(caller.failures for caller in callers)} requests failed")
        print(f"torn ends of segments: {len(report.cut)}; {report.error or 'all segments are in the lake'}")
        return 0 if report.error is None and judge(workspace, callers) else 1


if __name__ == "__main__":
    sys.exit(main())
