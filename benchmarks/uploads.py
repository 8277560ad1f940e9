"""End to end with a real client: uploads against the running service, with delayed rewards and concurrent updates.

    python benchmarks/uploads.py                       # 50,000 uploads, a few minutes
    python benchmarks/uploads.py --uploads 10000 --every 5s

`potstill serve --update-every` runs in its own processes. A client requests each decision over HTTP, from several
threads, and reports the reward a few seconds later; one upload in twenty gets no reward and counts as failed. The same
uploads then run in one process, with the same number of batches and no delay, and under a uniform policy; the best
action's expected reward is the bound. The table shows the expected reward of the chosen actions, in ten equal parts of
the run.
"""

from __future__ import annotations

import argparse
import heapq
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tomli_w

import potstill as ps
from potstill.client import Client
from potstill.lab.problems.video import VideoUpload
from potstill.teachers import LinearTS
from potstill.workspace import Workspace

WORLD = VideoUpload()
STRETCHES, THREADS, LOST = 10, 4, 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--uploads", type=int, default=50_000)
    parser.add_argument("--every", default="10s", help="time between two updates")
    parser.add_argument("--seconds", type=float, default=120.0, help="duration of the run, in seconds")
    parser.add_argument("--delay", type=float, default=2.0, help="mean seconds until a reward")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    contexts = WORLD.contexts(given.uploads, rng)
    means = WORLD.means(contexts)
    noise = rng.random(given.uploads)
    with tempfile.TemporaryDirectory() as folder, Service(Path(folder), given.every) as service:
        began = time.monotonic()
        chosen, versions = service.play(contexts, noise, given.seconds, given.delay)
        took = time.monotonic() - began
    batches = max(len(set(versions)) - 1, 1)
    print(f"{given.uploads:,} uploads in {took:.0f} s, {batches} versions served after the uniform policy")
    alone = in_process(contexts, noise, batches)
    rows = {
        "service": means[np.arange(given.uploads), chosen],
        "in one process": means[np.arange(given.uploads), alone],
        "uniform": means.mean(axis=1),
        "best": means.max(axis=1),
    }
    print(f"{'':16}" + "".join(f"{i + 1:7}" for i in range(STRETCHES)))
    for name, row in rows.items():
        print(f"{name:16}" + "".join(f"{part.mean():7.3f}" for part in np.array_split(row, STRETCHES)))
    late = [np.array_split(rows[name], STRETCHES)[-1].mean() for name in ("service", "in one process", "uniform")]
    gained = (late[0] - late[2]) / (late[1] - late[2])
    print(f"at the end, the service's gain over uniform is {gained:.0%} of that of the loop in one process")


def in_process(contexts: dict[str, np.ndarray], noise: np.ndarray, batches: int) -> np.ndarray:
    """The same uploads, decided and learnt from in one process."""
    still = ps.Still(WORLD.problem, LinearTS(), seed=0)
    encoded = WORLD.encode(contexts)
    chosen = np.empty(len(noise), np.int64)
    for rows in np.array_split(np.arange(len(noise)), batches + 1):
        actions, propensities = still.policy.decide_many(encoded[rows], [f"upload-{i}" for i in rows])
        chosen[rows] = actions
        part = {name: column[rows] for name, column in contexts.items()}
        still.update(
            ps.Observations.from_columns(
                WORLD.problem,
                contexts=encoded[rows],
                actions=actions,
                rewards=rewards(part, actions, noise[rows]),
                propensities=propensities,
            )
        )
    return chosen


def rewards(contexts: dict[str, np.ndarray], actions: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """Reward of each upload, with the same noise for every policy."""
    rows = np.arange(len(actions))
    success = WORLD.success(contexts)[rows, actions]
    quality = WORLD.means(contexts)[rows, actions] / success
    return np.where(noise < success * (1 - LOST), quality, 0.0)


class Service:
    """`potstill serve` with updates, and its client."""

    def __init__(self, folder: Path, every: str) -> None:
        described: dict[str, Any] = msgspec.to_builtins(WORLD.problem)
        described["reward"] = {**described.get("reward", {}), "window": "8s"}
        workspace = Workspace.create(folder / "uploads", tomli_w.dumps(described).encode(), CONFIG)
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        command = [sys.executable, "-m", "potstill.cli", "serve", workspace.url, "--port", str(self.port)]
        self.process = subprocess.Popen([*command, "--update-every", every], stdout=subprocess.DEVNULL)
        self.client = Client(f"http://127.0.0.1:{self.port}/v1/{workspace.problem.name}", timeout=30.0, retries=20)

    def __enter__(self) -> Service:
        for _ in range(300):
            try:
                self.client.status()
                return self
            except Exception:
                time.sleep(0.1)
        raise RuntimeError("the service does not answer")

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()

    def play(
        self, contexts: dict[str, np.ndarray], noise: np.ndarray, seconds: float, delay: float
    ) -> tuple[np.ndarray, list[int]]:
        """Upload everything at an even pace; returns the actions and the policy versions that chose them."""
        n = len(noise)
        chosen, versions = np.empty(n, np.int64), [0] * n
        delays = np.random.default_rng(1).exponential(delay, n)
        names = WORLD.problem.actions.names
        later = Later(self.client)
        began = time.monotonic()

        def upload(i: int) -> None:
            time.sleep(max(0.0, began + seconds * i / n - time.monotonic()))
            context = {name: column[i].item() for name, column in contexts.items()}
            answer = self.client.decide(context, id=f"upload-{i}")
            chosen[i], versions[i] = names.index(answer.action), answer.policy
            one = {name: column[i : i + 1] for name, column in contexts.items()}
            earned = rewards(one, chosen[i : i + 1], noise[i : i + 1])[0]
            if earned:
                later.reward(time.monotonic() + delays[i], answer.id, float(earned))

        with ThreadPoolExecutor(THREADS) as pool:
            for _ in pool.map(upload, range(n), chunksize=100):
                pass
        later.finish()
        return chosen, versions


class Later:
    """Reports rewards when they are due."""

    def __init__(self, client: Client) -> None:
        self._client, self._due, self._lock = client, [], threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def reward(self, at: float, name: str, earned: float) -> None:
        """Report a reward at a moment of the monotonic clock."""
        with self._lock:
            heapq.heappush(self._due, (at, name, earned))

    def finish(self) -> None:
        """Stop reporting; rewards that are due later are dropped."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.05):
            with self._lock:
                ready = []
                while self._due and self._due[0][0] <= time.monotonic():
                    ready.append(heapq.heappop(self._due))
            for _, name, earned in ready:
                self._client.reward(name, earned)


CONFIG = b"""
[join]
settle = "1s"
[log]
rotate_seconds = 1.0
[update]
min_observations = 200
"""

if __name__ == "__main__":
    main()
