"""What holds the memory of a worker: its libraries, its policy, and the decisions that it remembers by id.

    python benchmarks/memory.py                        # about two minutes
    python benchmarks/memory.py --trace                # and the lines of code that hold most (tracemalloc; slow)

A worker's application runs in a process of its own, with the example problem; a client decides one by one. Resident
memory is shown after the start and after each 50,000 decisions: with the usual `idempotency_size` (100,000; two
generations are kept), and with 1,000.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path

from soak_load import CONNECTIONS, Caller
from soak_samples import MB

STEP, STEPS, SIZES = 50_000, 6, (100_000, 1_000)
STAGES = ("interpreter and NumPy", "and all modules of a worker", "and the application")


def serve(folder: str, size: int, trace: bool) -> None:
    """Main function of the worker's process: prints its memory at each stage, then its port; serves until SIGTERM."""
    stages = [memory(os.getpid())]
    import uvicorn

    from potstill.service.app import create_app
    from potstill.service.limits import Options
    from potstill.service.metrics import Metrics
    from potstill.service.process.uvicorn_protocol import server_config
    from potstill.workspace import Workspace

    stages.append(memory(os.getpid()))
    if trace:
        tracemalloc.start()
    app = create_app([Workspace(folder)], Options(metrics=Metrics, idempotency_size=size))
    stages.append(memory(os.getpid()))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # uvicorn stops by its own handler, then raises the signal again
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)
        print(*stages, listening.getsockname()[1], flush=True)
        uvicorn.Server(server_config(app)).run([listening])
    if trace:
        for line in tracemalloc.take_snapshot().statistics("lineno")[:12]:
            frame = line.traceback[0]
            place = "/".join(Path(frame.filename).parts[-3:])
            print(f"  {line.size / MB:6.1f} MB in {line.count:9,} blocks  {place}:{frame.lineno}", flush=True)


def memory(pid: int) -> float:
    """Resident memory of a process, in MB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


async def decide(callers: list[Caller], count: int) -> None:
    """Take some decisions, over all connections."""
    await asyncio.gather(*(caller.run(float("inf"), float("inf"), count // len(callers)) for caller in callers))


def measure(size: int, trace: bool) -> None:
    from soak import make_workspace

    with tempfile.TemporaryDirectory() as place:
        workspace = make_workspace(Path(place) / "workspace")
        workspace.start()
        command = [sys.executable, __file__, "--serve", workspace.url, "--size", str(size), *(["--trace"] * trace)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            *stages, port = map(float, process.stdout.readline().split())
            print(f"\nidempotency_size {size:,}")
            for name, found in zip(STAGES, stages, strict=True):
                print(f"{name:32}{found:6.0f} MB")
            callers = [Caller(name, int(port), 60) for name in range(CONNECTIONS)]
            with asyncio.Runner() as runner:
                for step in range(1, STEPS + 1):
                    runner.run(decide(callers, STEP))
                    print(f"{step * STEP:10,} decisions{memory(process.pid):17.0f} MB", flush=True)
        finally:
            process.terminate()
            print(process.stdout.read(), end="")
            process.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", action="store_true", help="show the lines that hold most")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.size, options.trace)
        return
    for size in SIZES:
        measure(size, options.trace)


if __name__ == "__main__":
    main()
