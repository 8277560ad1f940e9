"""Service helpers: an application in this process, called without a network, or a server in its own process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from examples import random_layers

from potstill.policy import Policy
from potstill.service.app import App, create_app
from potstill.service.limits import Options
from potstill.service.process.uvicorn_protocol import Connection, server_config
from potstill.workspace import Workspace


class Answer(NamedTuple):
    """Reply to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Asker:
    """Sends requests to an application in this process."""

    def __init__(self, app: Any, prefix: str) -> None:
        self.app, self.prefix = app, prefix

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.ask("GET", path, b"", headers)

    async def post(self, path: str, value: Any = None, *, body: bytes | None = None, **headers: str) -> Answer:
        sent = json.dumps(value).encode() if body is None else body
        return await self.ask("POST", path, sent, {"content_type": "application/json", **headers})

    async def ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        """Send a request in one piece; headers are keyword arguments with _ for -."""
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(dict(message))

        stated = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        whole, _, query = (path if path.startswith("/") else self.prefix + path).partition("?")
        scope = {"type": "http", "method": method, "path": whole, "query_string": query.encode(), "headers": stated}
        await self.app(scope, receive, send)
        start, *rest = sent
        told = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], told, b"".join(message["body"] for message in rest))


@asynccontextmanager
async def opened(workspace: Workspace, **options: Any) -> AsyncIterator[Asker]:
    """Serve a workspace in this process within the block."""
    app = App([workspace], Options(**{"log_timeout": 30.0, **options}))
    await app.open()
    try:
        yield Asker(app, f"/v1/{workspace.problem.name}/")
    finally:
        await app.close()


def publish(workspace: Workspace, seed: int | None = None) -> Policy:
    """Publish and serve a new version with random weights."""
    head = workspace.registry.head()
    version = workspace.registry.next_version()
    layers = random_layers(workspace.problem, seed=version if seed is None else seed)
    policy = Policy.build(workspace.problem, layers, version=version)
    workspace.registry.publish(policy, teacher=None, report=b"{}", expected=head.number if head else 0)
    return policy


def experiment(control: str = '{ action = "720p" }', **options: str) -> bytes:
    """The experiment section of `potstill.toml`; values in TOML syntax."""
    lines = {"name": '"hd"', "control": control, **options}
    return b"\n[experiment]\n" + "\n".join(f"{name} = {value}" for name, value in lines.items()).encode() + b"\n"


def flushed(workspace: Workspace) -> Any:
    """The lake after flushing the whole log; no log may be open."""
    from potstill.events.lake import Flusher
    from potstill.events.wal import Spool

    report = Flusher(Spool(workspace.spool), workspace.lake).flush()
    assert report.error is None
    assert report.cut == []
    return workspace.lake


class Server(NamedTuple):
    """A running server."""

    url: str
    pid: int


@contextmanager
def running(*places: str | Path, **options: Any) -> Iterator[str]:
    """Serve workspaces within the block; yields the URL of the service.

    Args:
        places: Locations of the workspaces.
        options: Options of `potstill.service.app.Options` with JSON values.
    """
    with server(*places, **options) as started:
        yield started.url


@contextmanager
def server(*places: str | Path, **options: Any) -> Iterator[Server]:
    """Like `running`, but yields the process too; killing it within the block is not an error."""
    told = json.dumps({"places": list(map(str, places)), "options": options})
    # A thread in this process would share the interpreter with the callers.
    process = subprocess.Popen([sys.executable, __file__, told], stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        port = process.stdout.readline().strip()
        if not port:
            raise RuntimeError(f"the server ended with status {process.wait(30)} instead of starting")
        yield Server(f"http://127.0.0.1:{int(port)}", process.pid)
    finally:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        process.stdout.close()
        process.wait(30)


def main() -> None:
    """Serve until stopped; prints the port when it accepts requests."""
    import uvicorn

    told = json.loads(sys.argv[1])
    Connection.header_seconds = told["options"].pop("header_seconds", Connection.header_seconds)
    keep_alive = told["options"].pop("timeout_keep_alive", 5)
    app = create_app([Workspace(place) for place in told["places"]], Options(**told["options"]))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))

        class Announced(uvicorn.Server):
            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                if self.started:
                    print(listening.getsockname()[1], flush=True)

        Announced(server_config(app, timeout_keep_alive=keep_alive)).run([listening])


if __name__ == "__main__":
    main()
