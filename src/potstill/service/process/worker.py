"""``python -m potstill.service.process.worker SPEC --ready DESCRIPTOR``: answer requests on the parent's socket."""

from __future__ import annotations

import argparse
import os
import socket
from functools import partial
from itertools import zip_longest

import msgspec
import uvicorn

from potstill.problem import Problem
from potstill.service.allowed_hosts import AllowedHosts
from potstill.service.app import create_app
from potstill.service.auth import Guard
from potstill.service.counts import Counts
from potstill.service.limits import Options
from potstill.service.metrics import Metrics, ProblemMetrics
from potstill.service.process.connections import most_connections
from potstill.service.process.supervisor import READY
from potstill.service.process.uvicorn_protocol import Connection, server_config
from potstill.service.shared_ids import SharedIds
from potstill.service.tokens import token_file
from potstill.workspace import Config, Workspace

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
        configs: Their configurations when the service started, likewise.
        number: Number of this worker.
        descriptor: Descriptor of the listening socket, shared by all workers.
        workers: Number of workers.
        counts: Descriptor of the workers' shared counts.
        ids: Descriptor of the ids that they have decided; None if there is one worker.
        tokens: A file of tokens for all workspaces; None for one in each.
        closed: For each workspace, whether to refuse callers also where there is no file of tokens.
        cors: Origins of pages that may call.
        personalizer: Whether to answer the requests of Azure Personalizer.
    """

    places: tuple[str, ...]
    problems: tuple[Problem, ...] = ()
    configs: tuple[Config, ...] = ()
    number: int
    descriptor: int
    workers: int
    counts: int
    ids: int | None = None
    tokens: str | None = None
    closed: tuple[bool, ...]
    cors: tuple[str, ...] = ()
    personalizer: bool = False


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
    counts = Counts(spec.counts, spec.number, spec.workers)
    workspaces = [Workspace(*stated) for stated in zip_longest(spec.places, spec.problems, spec.configs)]
    guards = {
        workspace.problem.name: Guard(token_file(workspace, spec.tokens), required=closed)
        for workspace, closed in zip(workspaces, spec.closed, strict=True)
    }
    shared = None if spec.ids is None else partial(SharedIds, spec.ids, spec.number, spec.workers)
    metrics = partial(Metrics, counts=counts)
    options = Options(guards=guards, metrics=metrics, shared_ids=shared, cors=spec.cors, personalizer=spec.personalizer)
    app = create_app(workspaces, options)
    Connection.most_connections, Connection.recorder = most_connections(len(workspaces)), ProblemMetrics(counts, "")
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
    run(msgspec.json.decode(arguments.spec, type=Spec), arguments.ready)


if __name__ == "__main__":
    main()
