"""``python -m potstill.service.process.worker SPEC --ready DESCRIPTOR``: answer requests on the parent's socket."""

from __future__ import annotations

import argparse
import os
import shutil
import socket
from itertools import zip_longest
from pathlib import Path

import msgspec
import uvicorn

from potstill.problem import Problem
from potstill.service.allowed_hosts import AllowedHosts
from potstill.service.app import create_app
from potstill.service.auth import Guard
from potstill.service.limits import Options
from potstill.service.metrics import Metrics, share
from potstill.service.process.supervisor import READY
from potstill.service.process.uvicorn_protocol import server_config
from potstill.service.tokens import token_file
from potstill.workspace import Workspace

#: Seconds for requests in flight at shutdown, before the log is closed.
GRACE = 6
#: Seconds that an idle connection is kept: longer than load balancers keep theirs, so that they close first.
KEEP_ALIVE = 75


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of a worker.

    Attributes:
        places: Workspaces.
        problems: Their problems when the service started: a worker that is restarted decides what the others decide.
            Empty if they are too large for a command line; it then reads the files.
        number: Number of this worker.
        descriptor: Descriptor of the listening socket, shared by all workers.
        metrics: Folder of the workers' shared counts.
        tokens: A file of tokens for all workspaces; None for one in each.
        closed: Whether to refuse callers also where there is no file of tokens.
        cors: Origins of pages that may call.
    """

    places: tuple[str, ...]
    problems: tuple[Problem, ...] = ()
    number: int
    descriptor: int
    metrics: str
    tokens: str | None = None
    closed: bool = False
    cors: tuple[str, ...] = ()


class Server(uvicorn.Server):
    """A uvicorn server that reports when it accepts requests."""

    def __init__(self, config: uvicorn.Config, ready: int) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and report it."""
        await super().startup(sockets)
        os.write(self._ready, READY)
        os.close(self._ready)


def run(spec: Spec, ready: int) -> None:
    """Answer requests until SIGTERM, and finish those in flight."""
    share(Path(spec.metrics), spec.number)
    workspaces = [Workspace(*pair) for pair in zip_longest(spec.places, spec.problems)]
    guards = {w.problem.name: Guard(token_file(w, spec.tokens), required=spec.closed) for w in workspaces}
    app = create_app(workspaces, Options(guards=guards, metrics=Metrics, cors=spec.cors))
    config = server_config(
        AllowedHosts(app, guards.values()),
        loop="uvloop",
        log_config=None,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
    )
    Server(config, ready).run([socket.socket(fileno=spec.descriptor)])


def main() -> None:
    """Run the worker that the arguments describe."""
    parser = argparse.ArgumentParser()
    parser.add_argument("spec")
    parser.add_argument("--ready", type=int, required=True)
    arguments = parser.parse_args()
    spec, parent = msgspec.json.decode(arguments.spec, type=Spec), os.getppid()
    try:
        run(spec, arguments.ready)
    finally:
        if os.getppid() != parent:  # the parent was killed, and cannot clean up itself
            shutil.rmtree(spec.metrics, ignore_errors=True)


if __name__ == "__main__":
    main()
