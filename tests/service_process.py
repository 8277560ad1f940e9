"""`potstill serve` in its own process on loopback, stopped by process id."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 30  # timeout in seconds, generous for a busy machine


class Running:
    """A running service."""

    def __init__(self, process, folder: Path) -> None:
        self.process, self._folder = process, folder
        self.port = self._port()

    @property
    def printed(self) -> str:
        """Its standard output."""
        return (self._folder / "stdout").read_text()

    @property
    def errors(self) -> str:
        """Its standard error."""
        return (self._folder / "stderr").read_text()

    def ask(self, method, path, body=None, token=None):
        """Status and reply of one request, on a new connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            return asked(connection, method, path, body, token)
        finally:
            connection.close()

    def children(self) -> dict[str, list[int]]:
        """The processes of the service, by module."""
        found: dict[str, list[int]] = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                parent = int(re.search(r"^PPid:\s+(\d+)", (folder / "status").read_text(), re.M)[1])
                command = (folder / "cmdline").read_bytes().split(b"\0")
            except (OSError, TypeError):
                continue
            if parent == self.process.pid and len(command) > 4:
                found.setdefault(command[4].decode(), []).append(int(folder.name))
        return found

    def stop(self, number=signal.SIGTERM) -> int:
        """Stop the service gracefully, and return its exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def _port(self) -> int:
        def announced():
            assert self.process.poll() is None, f"the service ended with {self.process.returncode}: {self.errors}"
            return re.search(r"serves on http://[\d.]+:(\d+)\n(?=.*try:)", self.printed, re.S)

        return int(until(announced)[1])


@contextmanager
def serving(
    folder: Path, *arguments: object, port: int = 0, open_files: int | None = None, **variables: str
) -> Iterator[Running]:
    """Start a service; its output goes to files in a folder. `open_files` limits those of each process."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "potstill.cli", "serve", *map(str, arguments), "--port", str(port)]
    if open_files is not None:
        command = ["sh", "-c", f'ulimit -n {open_files}; exec "$0" "$@"', *command]
    with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr, env={**os.environ, **variables})
    try:
        yield Running(process, folder)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def asked(connection, method, path, body=None, token=None):
    """Status and reply of one request."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    reply = connection.getresponse()
    data = reply.read()
    return reply.status, json.loads(data) if reply.headers.get_content_type() == "application/json" else data


def until(found, seconds=PATIENCE):
    """Poll a function until it returns a true value, and return that."""
    deadline = time.monotonic() + seconds
    while not (result := found()):
        assert time.monotonic() < deadline, f"nothing after {seconds} seconds: {found}"
        time.sleep(0.02)
    return result


class Load:
    """Threads that decide and reward as fast as possible, and record acknowledgements."""

    def __init__(
        self, running: Running, problem: str, context: dict[str, object], threads: int = 4, name: str = "load"
    ) -> None:
        self._name = name
        self._running, self._path, self._context = running, f"/v1/{problem}", context
        self.decided: list[str] = []
        self.rewarded: list[str] = []
        self.failures: list[str] = []
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(threads)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self, thread: int) -> None:
        """Main loop of a thread; reconnects while the service runs."""
        number = 0
        while not self._ended.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self._running.port, timeout=PATIENCE)
            try:
                while not self._ended.is_set():
                    number += 1
                    self._decide(connection, f"{self._name}-{thread}-{number}")
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
                time.sleep(0.05)
            finally:
                connection.close()

    def _decide(self, connection, decision_id: str) -> None:
        status, reply = asked(connection, "POST", f"{self._path}/decide", {"id": decision_id, "context": self._context})
        assert status == 200, reply
        self.decided.append(decision_id)
        status, reply = asked(connection, "POST", f"{self._path}/reward", {"id": decision_id, "reward": 0.5})
        assert status == 202, reply
        self.rewarded.append(decision_id)
