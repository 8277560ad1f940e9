"""Change the actions of a service under load: no request may fail, and every logged propensity must be right.

    python benchmarks/live_actions.py                      # 10,000 requests during 50 changes, two workers
    python benchmarks/live_actions.py --requests 2000 --changes 10 --workers 1

Threads decide, singly and in batches, with and without eligible actions, repeat some requests, and report rewards,
without retries. Meanwhile actions are added, retired, brought back and removed, by the command line's functions and
over HTTP in turn. Then as many requests run without changes, to compare latencies. In the end the lake is compared
with what was answered, and audited.
"""

from __future__ import annotations

import argparse
import http.client
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
from service import NAME, make_workspace

from potstill.events.lake import Flusher
from potstill.events.wal import Spool
from potstill.pipeline import run_audit
from potstill.workspace import Workspace, add_action, remove_action, retire_action

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from service_process import Running, asked, serving

THREADS, BATCH = 4, 5
#: Cycle of changes; the first two actions of the problem always stay.
CYCLE = (("add", "new-{0}"), ("retire", "new-{0}"), ("add", "new-{0}"), ("retire", "{last}"), ("add", "{last}"),
         ("remove", "new-{0}"))  # fmt: skip


class Caller(threading.Thread):
    """Sends requests until it is ended, and records what was answered.

    Attributes:
        decided: Action, propensity and version of each decision, by id.
        failures: What was answered instead of a success.
        seconds: Duration of each request.
    """

    def __init__(self, running: Running, name: str, stable: list[str], context: dict[str, object]) -> None:
        super().__init__()
        self.decided: dict[str, tuple[str, float, int]] = {}
        self.failures: list[object] = []
        self.seconds: list[float] = []
        self.changed_answers = 0
        self._running, self._name, self._stable, self._context = running, name, stable, context
        self._random, self._ended = random.Random(name), threading.Event()

    def end(self) -> None:
        """Stop sending."""
        self._ended.set()

    def run(self) -> None:
        """Main loop of the thread."""
        connection = http.client.HTTPConnection("127.0.0.1", self._running.port, timeout=30)
        number = 0
        while not self._ended.is_set():
            number += 1
            try:
                self._round(connection, f"{self._name}-{number}")
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
                connection.close()
        connection.close()

    def _round(self, connection: http.client.HTTPConnection, name: str) -> None:
        eligible = self._random.choice([None, self._stable, self._stable[:1]])
        request = {"id": name, "context": self._context} | ({} if eligible is None else {"eligible": eligible})
        self._keep([self._ask(connection, "decide", request)])
        self._ask(connection, "reward", {"id": name, "reward": self._random.random()})
        batch = [{"id": f"{name}/{i}", "context": self._context} for i in range(BATCH)]
        reply = self._ask(connection, "decide/batch", {"requests": batch})
        self._keep(reply["decisions"] if reply else [])
        if self._random.random() < 0.2:
            self._keep([self._ask(connection, "decide", request)])  # again: it must be the same decision

    def _keep(self, replies: list[dict[str, object] | None]) -> None:
        for reply in replies:
            if reply is not None:
                answer = (str(reply["action"]), float(str(reply["propensity"])), int(str(reply["policy"])))
                self.changed_answers += self.decided.setdefault(str(reply["id"]), answer) != answer

    def _ask(self, connection: http.client.HTTPConnection, path: str, body: object) -> dict | None:
        began = time.perf_counter()
        status, reply = asked(connection, "POST", f"/v1/{NAME}/{path}", body)
        self.seconds.append(time.perf_counter() - began)
        if status not in (200, 202):
            self.failures.append((status, reply))
            return None
        return reply


def load(
    running: Running, name: str, stable: list[str], context: dict[str, object], requests: int, work
) -> list[Caller]:
    """Run callers while `work` runs, and until they have sent enough requests."""
    callers = [Caller(running, f"{name}{i}", stable, context) for i in range(THREADS)]
    for caller in callers:
        caller.start()
    work()
    while sum(len(caller.seconds) for caller in callers) < requests:
        time.sleep(0.05)
    for caller in callers:
        caller.end()
    for caller in callers:
        caller.join()
    return callers


def change(running: Running, place: str, number: int, last: str, failures: list[object]) -> None:
    """Make one change, over HTTP or not."""
    what, pattern = CYCLE[number % len(CYCLE)]
    action = pattern.format(number // len(CYCLE), last=last)
    if number % 2:
        body = {"change": what, "action": action, "by": "benchmark"}
        status, reply = running.ask("POST", f"/v1/{NAME}/admin/actions", body)
        if status != 200 or not reply["changed"]:
            failures.append((status, reply))
    else:
        changes = {"add": add_action, "retire": retire_action, "remove": remove_action}
        if not changes[what](place, action, by="benchmark").changed:
            failures.append((what, action))


def p99(callers: list[Caller]) -> float:
    """The 99th percentile of the durations of requests, in milliseconds."""
    return float(np.quantile(np.concatenate([caller.seconds for caller in callers]), 0.99)) * 1e3


def compare(place: str, callers: list[Caller]) -> Counter[str]:
    """How the lake differs from what was answered."""
    workspace = Workspace(place)
    Flusher(Spool(workspace.spool), workspace.lake).flush()
    columns = workspace.lake.scan("decisions").select("id", "action", "propensity", "policy").collect()
    rows = {row[0]: row[1:] for row in columns.iter_rows()}
    found: Counter[str] = Counter(doubled=columns.height - len(rows))
    for caller in callers:
        found["answers that changed"] += caller.changed_answers
        for name, (action, propensity, policy) in caller.decided.items():
            row = rows.get(name)
            found["lost"] += row is None
            if row is not None:
                near = abs(row[1] - propensity) <= 1e-6 * propensity
                found["different"] += (row[0], row[2]) != (action, policy) or not near
    return found


def main() -> int:
    """Run the load, and print what was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--changes", type=int, default=50)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / NAME)
        Path(place).mkdir()
        make_workspace(Path(place))
        workspace = Workspace(place)
        names = list(workspace.problem.actions.names)
        context = {feature.name: feature.example for feature in workspace.problem.context}
        stable, last, failures = names[:2], names[-1], list[object]()
        with serving(Path(folder) / "service", place, "--workers", options.workers) as running:
            began, took = time.perf_counter(), list[float]()

            def work() -> None:
                for number in range(options.changes):
                    at = time.perf_counter()
                    change(running, place, number, last, failures)
                    took.append(time.perf_counter() - at)

            changed = load(running, "changed", stable, context, options.requests, work)
            seconds = time.perf_counter() - began
            calm = load(running, "calm", stable, context, options.requests, lambda: None)
            code, errors = running.stop(), running.errors
        differences = compare(place, [*changed, *calm])
        audit = run_audit(Workspace(place))
        versions = len(Workspace(place).registry.versions())
    failed = [*failures, *(failure for caller in [*changed, *calm] for failure in caller.failures)]
    sent, decisions = sum(len(caller.seconds) for caller in changed), sum(len(caller.decided) for caller in changed)
    print(f"{sent:,} requests with {decisions:,} decisions during {options.changes} changes in {seconds:.1f} s")
    print(f"a change takes {np.median(took) * 1e3:.0f} ms (median), {max(took) * 1e3:.0f} ms at most")
    print(f"p99 {p99(changed):.1f} ms during changes, {p99(calm):.1f} ms without: ratio {p99(changed) / p99(calm):.2f}")
    print(f"failed: {len(failed)}; " + ", ".join(f"{name}: {count}" for name, count in differences.items()))
    print(f"audit: clean {audit.clean}, {audit.checked:,} of {audit.decisions:,} recomputed, {versions} versions")
    for failure in failed[:5]:
        print(failure)
    bad = bool(failed) or any(differences.values()) or not audit.clean or code != 0
    if bad:
        print(errors)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
