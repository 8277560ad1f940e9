"""A fake service: has the URLs of the real one, records requests, and fails on demand."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from potstill.policy import Policy

#: Faults to inject; each applies to one request.
CUT, LOST_REPLY, SLOW = "cut", "lost reply", "slow"


class FakeService:
    """Recorded requests, and faults to inject.

    Attributes:
        observations: Bodies received, by id.
        rewards: Bodies received, by (id, key).
        faults: Faults of the next requests: a status, (status, headers[, body]) or a fault above; ``LOST_REPLY``
            processes the request and then closes the connection.
        bad_ids: Ids of rows to reject.
        requests: (method, path, headers) of each request.
    """

    def __init__(self, policy: Policy) -> None:
        self.problem = policy.problem.name
        self.policy_file = policy.to_bytes()
        self.policy = policy
        self.etag: str | None = None
        self.observations: dict[str, list[dict[str, Any]]] = {}
        self.rewards: dict[tuple[str, str], list[dict[str, Any]]] = {}
        self.faults: list[Any] = []
        self.bad_ids: set[str] = set()
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.bodies: list[Any] = []
        self.port = 0
        self._lock = threading.Lock()
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/{self.problem}"

    def serve(self, policy: Policy) -> None:
        """Publish another policy."""
        self.policy, self.policy_file = policy, policy.to_bytes()

    def start(self) -> None:
        self._server = _Server(("127.0.0.1", self.port), _Handler, self)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Cut the network: close connections, and accept no new ones."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server.hang_up()
            self._server = None

    def next_fault(self) -> Any:
        with self._lock:
            return self.faults.pop(0) if self.faults else None

    def answer(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        with self._lock:
            self.requests.append((method, path, headers))
            told = json.loads(body) if body else None
            self.bodies.append(told)
            return self._answer(path.removeprefix(f"/v1/{self.problem}/"), headers, told)

    def _answer(self, path: str, headers: dict[str, str], told: Any) -> tuple[int, dict[str, str], bytes]:
        if path == "policy":
            etag = self.etag or f'"{hashlib.sha256(self.policy_file).hexdigest()}"'
            if headers.get("if-none-match") == etag:
                return 304, {"ETag": etag, "X-Potstill-Time": str(time.time())}, b""
            return 200, {"ETag": etag, "X-Potstill-Time": str(time.time())}, self.policy_file
        if path == "decide":
            return _json(200, self._decide(told))
        if path == "decide/batch":
            return _json(200, {"decisions": [self._decide(one) for one in told["requests"]]})
        if path in ("observe", "reward"):
            return self._take(path, told["observations" if path == "observe" else "rewards"])
        if path == "status":
            return _json(200, {"problem": self.problem, "ready": True})
        return _json(404, {"error": f"no such path: {path}"})

    def _decide(self, told: dict[str, Any]) -> dict[str, Any]:
        decision = self.policy.decide(told["context"], id=told["id"], eligible=told.get("eligible"))
        known = {name: getattr(decision, name) for name in ("id", "action", "propensity", "policy")}
        return {**known, "mode": "online"}

    def _take(self, path: str, rows: list[dict[str, Any]]) -> tuple[int, dict[str, str], bytes]:
        for i, row in enumerate(rows):
            if row["id"] in self.bad_ids:
                return _json(422, {"error": f"row {i} does not fit"})
        for row in rows:
            if path == "observe":
                self.observations.setdefault(row["id"], []).append(row)
            else:
                self.rewards.setdefault((row["id"], row["key"]), []).append(row)
        return _json(202, {"accepted": len(rows)})


@contextmanager
def running(policy: Policy) -> Iterator[FakeService]:
    """A service on loopback."""
    service = FakeService(policy)
    service.start()
    try:
        yield service
    finally:
        service.stop()


def _json(status: int, value: object) -> tuple[int, dict[str, str], bytes]:
    return status, {"Content-Type": "application/json"}, json.dumps(value).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 50

    def __init__(self, address: tuple[str, int], handler: type, service: FakeService) -> None:
        self.service = service
        self.open: set[socket.socket] = set()
        super().__init__(address, handler)

    def hang_up(self) -> None:
        for connection in list(self.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # connections that end early are part of the tests


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.open.add(self.connection)

    def finish(self) -> None:
        self.server.open.discard(self.connection)
        super().finish()

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        self._handle()

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.server.service.next_fault()
        if isinstance(fault, int):
            return self._reply(fault, {}, b'{"error": "on demand"}')
        if isinstance(fault, tuple):
            return self._reply(*fault) if len(fault) == 3 else self._reply(*fault, b'{"error": "on demand"}')
        if fault == CUT:
            return self._hang_up(b"HTTP/1.1 202 Accepted\r\nContent-Length: 500\r\n\r\n{")
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, extra, reply = self.server.service.answer(self.command, self.path, headers, body)
        if fault == LOST_REPLY:
            return self._hang_up(b"")
        return self._reply(status, extra, reply, slow=fault == SLOW)

    def do_OPTIONS(self) -> None:
        """CORS preflight of a browser."""
        self._reply(204, {}, b"")

    def _hang_up(self, first: bytes) -> None:
        self.wfile.write(first)
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def _reply(self, status: int, headers: dict[str, str], body: bytes, *, slow: bool = False) -> None:
        self.send_response(status)
        cors = {
            "Access-Control-Allow-Origin": "*",
            "Access-Control-Allow-Headers": "content-type, if-none-match, authorization",
            "Access-Control-Expose-Headers": "etag, retry-after, x-potstill-time",
        }
        for name, value in {**cors, **headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        for at in range(len(body)):
            if not slow:
                self.wfile.write(body)
                break
            self.wfile.write(body[at : at + 1])
            self.wfile.flush()
            time.sleep(0.02)

    def log_message(self, *_: object) -> None:
        pass
