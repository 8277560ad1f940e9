"""The decision service on one core: durable decisions per second, compared with an endpoint that does nothing.

    python benchmarks/service.py                       # about a minute; needs wrk and taskset
    python benchmarks/service.py --folder /data --seconds 20

The server is pinned to core 0, wrk to core 1. A request has 38 numeric features; the policy has two hidden layers of
100 and 7 actions. "bare" is a Starlette endpoint that reads the same body and replies with the same number of bytes,
on uvicorn as it comes; it is the bound for single decisions. "bare, our protocol" is that endpoint on the HTTP
protocol of the service. Every decision is on disk before the reply, so the folder must be on a disk. "swaps"
publishes a new policy every half second. "updates" runs `potstill update` on the example workspace in a loop on the
server's core, at the priority that `potstill serve --update-every` gives it. "views" reads the pages in turn, one
every half second. CPU is that of the server per decision, kernel included: it shows the capacity of a core even on a
busy machine. Latencies are wrk's, which counts a stall for every request that would have been sent during it.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

import potstill as ps
from potstill.policy import Layer
from potstill.service.process.serve import NICE
from potstill.workspace import Workspace

FEATURES, ACTIONS, HIDDEN = 38, 7, 100
NAME = "benchmark"
LOAD = Path(__file__).with_name("service.lua")
PROBLEM = ps.Problem(
    name=NAME,
    context=[ps.Numeric(f"feature_{i}", low=0, high=1) for i in range(FEATURES)],
    actions=ps.Discrete([f"action-{i}" for i in range(ACTIONS)]),
)


def policy(version: int) -> ps.Policy:
    rng = np.random.default_rng(version)
    sizes = [FEATURES, HIDDEN, HIDDEN, ACTIONS]
    layers = [
        Layer(rng.normal(0, a**-0.5, (a, b)).astype(np.float32), np.zeros(b, np.float32)) for a, b in pairwise(sizes)
    ]
    return ps.Policy.build(PROBLEM, layers, version=version)


def publish(workspace: Workspace) -> None:
    head = workspace.registry.head()
    version = workspace.registry.next_version()
    workspace.registry.publish(policy(version), teacher=None, report=b"{}", expected=head.number if head else 0)


def make_workspace(folder: Path) -> Workspace:
    PROBLEM.save(folder / "problem.toml")
    workspace = Workspace(folder)
    publish(workspace)
    return workspace


@contextmanager
def serving(kind: str, folder: Path) -> Iterator[tuple[int, str]]:
    """Start a server on core 0; yields its process and address."""
    command = ["taskset", "-c", "0", sys.executable, __file__, "--serve", kind, "--folder", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port = int(process.stdout.readline())
        yield process.pid, f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def serve(kind: str, folder: Path) -> None:
    """Main function of the server's process."""
    import uvicorn

    from potstill.service.process.uvicorn_protocol import server_config

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        print(listening.getsockname()[1], flush=True)
        listening.listen(1024)
        plain = uvicorn.Config(bare(), access_log=False, proxy_headers=False, log_level="warning", server_header=False)
        config = plain if kind == "plain" else server_config(bare() if kind == "bare" else whole(folder))
        uvicorn.Server(config).run([listening])


def whole(folder: Path) -> Any:
    from potstill.service.app import create_app
    from potstill.service.limits import Options
    from potstill.service.metrics import Metrics

    return create_app([Workspace(folder)], Options(metrics=Metrics))


def bare() -> Any:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    reply = json.dumps(
        {"id": "x" * 12, "action": "action-3", "propensity": 0.1428571492433548, "policy": 1, "mode": "online"}
    )

    async def answer(request: Request) -> Response:
        await request.body()
        return Response(reply, media_type="application/json")

    return Starlette(
        routes=[Route(f"/v1/{NAME}/{path}", answer, methods=["POST"]) for path in ("decide", "decide/batch")]
    )


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def load(url: str, *, connections: int, seconds: float, size: int) -> dict[str, float]:
    """Run wrk on core 1, and return its measurements."""
    path = "decide/batch" if size else "decide"
    shape = f"-t 1 -c {connections} -d {seconds:g}s --timeout 10s".split()
    address = [f"{url}/v1/{NAME}/{path}", "--", f"{time.time_ns()}", str(size)]
    command = ["taskset", "-c", "1", "wrk", *shape, "-s", str(LOAD), *address]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def wait_until_up(url: str) -> None:
    import httpx

    while True:
        try:
            httpx.get(f"{url}/health")
            return
        except httpx.TransportError:
            time.sleep(0.05)


class Row(NamedTuple):
    """One measurement: server, connections, decisions per request (0: no batch), and concurrent work."""

    name: str
    kind: str
    connections: int
    size: int = 0
    beside: Literal["", "swaps", "updates", "views"] = ""


ROWS = (
    Row("bare Starlette", "plain", 32),
    Row("bare, our protocol", "bare", 32),
    Row("decide", "whole", 32),
    Row("decide, 128 connections", "whole", 128),
    Row("decide, swaps", "whole", 32, beside="swaps"),
    Row("decide, updates", "whole", 32, beside="updates"),
    Row("decide, views", "whole", 32, beside="views"),
    Row("bare, batches of 1000", "plain", 4, size=1000),
    Row("batches of 1000", "whole", 4, size=1000),
)
TITLES = {"conn": 5, "decisions/s": 12, "CPU µs": 9, "core": 8, "p50 ms": 9, "p99 ms": 9, "worst": 9, "failed": 8}


def run(row: Row, folder: Path, seconds: float) -> float:
    """Print one row of the table, and return decisions per second."""
    with serving(row.kind, folder) as (pid, url):
        wait_until_up(url)
        load(url, connections=row.connections, seconds=1, size=row.size)
        with BESIDE[row.beside](folder, url):
            before = cpu_seconds(pid)
            found = load(url, connections=row.connections, seconds=seconds, size=row.size)
            cpu = cpu_seconds(pid) - before
    decisions = found["requests"] * (row.size or 1)
    rate = decisions / found["seconds"]
    print(
        f"{row.name:<26}{row.connections:>5}{rate:>12,.0f}{cpu / decisions * 1e6:>9.2f}{cpu / found['seconds']:>8.0%}"
        f"{found['p50']:>9.2f}{found['p99']:>9.2f}{found['worst']:>9.1f}{found['failed']:>8.0f}",
        flush=True,
    )
    return rate


@contextmanager
def repeated(work: Callable[[], object]) -> Iterator[None]:
    """Call a function every half second."""
    stop = threading.Event()

    def repeat() -> None:
        while not stop.wait(0.5):
            work()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def nothing(_: Path, __: str) -> AbstractContextManager[None]:
    return nullcontext()


def swapping(folder: Path, _: str) -> AbstractContextManager[None]:
    """Publish a new version every half second."""
    workspace = Workspace(folder)
    return repeated(lambda: publish(workspace))


def viewing(_: Path, url: str) -> AbstractContextManager[None]:
    """Read a page every half second, one view after the other, as the browser asks for it again."""
    import httpx

    from potstill.service.dashboard.views import VIEWS

    views = cycle(VIEWS)

    def read() -> None:
        reply = httpx.get(f"{url}/p/{NAME}/{next(views).name}", headers={"HX-Request": "true"}, timeout=60)
        assert reply.status_code == 200, reply.text

    return repeated(read)


@contextmanager
def updating(folder: Path, _: str) -> Iterator[None]:
    """Run updates of another workspace in a loop."""
    potstill, place = [sys.executable, "-m", "potstill.cli"], str(folder / "example")
    subprocess.run([*potstill, "init", place, "--example"], stdout=subprocess.DEVNULL, check=True)
    command = [*potstill, "update", place, "--watch", "--every", "1s", "--force"]
    process = subprocess.Popen(["taskset", "-c", "0", "nice", "-n", str(NICE), *command], stdout=subprocess.DEVNULL)
    try:
        while Workspace(place).registry.head() is None:  # wait until it is learning
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()
        shutil.rmtree(place)


BESIDE = {"": nothing, "swaps": swapping, "updates": updating, "views": viewing}


def sync_ms(folder: Path) -> tuple[float, float]:
    """Milliseconds to write and sync the bytes of 32 decisions on core 0, idle: median and 99th percentile."""
    os.sched_setaffinity(0, {0})
    taken = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        for _ in range(300):
            began = time.perf_counter()
            os.write(file.fileno(), os.urandom(32 * 400))
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    os.sched_setaffinity(0, {1})  # leave core 0 to the server
    return tuple(np.percentile(taken, [50, 99]) * 1e3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()), help="folder on the disk to measure"
    )
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--only", default="", help="measure only rows whose names contain this")
    parser.add_argument("--serve", choices=["plain", "bare", "whole"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.folder)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as place:
        folder = Path(place)
        make_workspace(folder)
        median, p99 = sync_ms(folder)
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; a sync takes {median:.2f} ms, p99 {p99:.2f} ms")
        print(" " * 26 + "".join(f"{title:>{width}}" for title, width in TITLES.items()))
        rates = {row.name: run(row, folder, arguments.seconds) for row in ROWS if arguments.only in row.name}
    bounds = [
        ("decide", "bare Starlette"),
        ("decide", "bare, our protocol"),
        ("batches of 1000", "bare, batches of 1000"),
    ]
    for name, bound in bounds:
        if name in rates and bound in rates:
            print(f"{name} / {bound}: {rates[name] / rates[bound]:.2f}")


if __name__ == "__main__":
    main()
