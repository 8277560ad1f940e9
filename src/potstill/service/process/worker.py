"""``python -m potstill.service.process.worker SPEC --ready DESCRIPTOR``: answer requests on the parent's socket."""

from __future__ import annotations

import argparse
import os
import shutil
import socket
from pathlib import Path

import msgspec
import uvicorn

from potstill.service.allowed_hosts import KnownHosts
from potstill.service.app import create_app
from potstill.service.limits import Options
from potstill.service.metrics import Metrics, share
from potstill.service.process.supervisor import READY
from potstill.service.process.uvicorn_protocol import server_config
from potstill.service.tokens import Guard, token_file
from potstill.workspace import Workspace

#: Seconds that requests may still take when the end was asked for; the log is closed after that.
GRACE = 6
#: Seconds that a connection without requests is kept: longer than load balancers keep theirs, which are to close first.
KEEP_ALIVE = 75


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is to do.

    Attributes:
        places: the workspaces.
        number: of this worker.
        descriptor: of the socket that it shares with the others.
        metrics: the folder in which workers count together.
        tokens: a file of tokens for all workspaces; None for one in each.
        closed: refuse callers also where there is no file of tokens.
        cors: origins of pages that may call.
    """

    places: tuple[str, ...]
    number: int
    descriptor: int
    metrics: str
    tokens: str | None = None
    closed: bool = False
    cors: tuple[str, ...] = ()


class Server(uvicorn.Server):
    """Says when it takes requests."""

    def __init__(self, config: uvicorn.Config, ready: int) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        os.write(self._ready, READY)
        os.close(self._ready)


def run(spec: Spec, ready: int) -> None:
    """Answer requests until SIGTERM, and then those that are being answered."""
    share(Path(spec.metrics), spec.number)
    workspaces = [Workspace(place) for place in spec.places]
    guards = {w.problem.name: Guard(token_file(w, spec.tokens), required=spec.closed) for w in workspaces}
    app = create_app(workspaces, Options(guards=guards, metrics=Metrics, cors=spec.cors))
    config = server_config(
        KnownHosts(app, guards.values()),
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
        if os.getppid() != parent:  # it was killed, and cannot tidy up itself
            shutil.rmtree(spec.metrics, ignore_errors=True)


if __name__ == "__main__":
    main()
