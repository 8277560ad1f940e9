"""Heads beyond the limits and requests of odd forms are answered before a token is looked at, and hold no memory."""

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import worlds
from service_examples import Server, server

from potstill.service.process.uvicorn_protocol import HEAD_BYTES, HEADERS, LINE_BYTES, PIPELINED

START = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
MIB = 1024 * 1024
CHUNKED = (
    b"POST /v1/video-upload/decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
)


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> Iterator[Server]:
    place = tmp_path_factory.mktemp("heads") / "video"
    worlds.made(str(place))
    with server(place, log_timeout=30) as started:
        yield started


@contextmanager
def connected(served: Server) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", httpx.URL(served.url).port), timeout=20) as connection:
        yield connection


def replies(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def asked(served: Server, *parts: bytes) -> bytes:
    with connected(served) as connection:
        for part in parts:
            connection.sendall(part)
        return replies(connection)


def memory(served: Server) -> float:
    """Resident memory of the server in MiB."""
    status = Path(f"/proc/{served.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def closing(*lines: bytes) -> bytes:
    return START + b"".join(line + b"\r\n" for line in lines) + b"Connection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("start", "status"),
    [(START + b"X-A: ", b"431"), (b"GET /health HTTP/1.1\r\nHost: ", b"431"), (b"GET /", b"414"), (b"GET /?", b"414")],
)
def test_a_line_without_end_is_refused_and_not_held(served, start, status):
    before = memory(served)
    told = asked(served, start, *[b"a" * MIB] * 20, b"\r\n\r\n")
    assert told.startswith(b"HTTP/1.1 " + status)
    assert b"connection: close" in told
    assert "at most" in json.loads(told.partition(b"\r\n\r\n")[2])["error"]
    assert memory(served) < before + 10


def test_small_headers_without_end_are_refused_and_not_held(served):
    before = memory(served)
    assert asked(served, START, *[b"a:b\r\n" * (MIB // 5)] * 20, b"\r\n").startswith(b"HTTP/1.1 431")
    assert memory(served) < before + 10


@pytest.mark.parametrize("sent", [b"whole", b"in pieces"])
@pytest.mark.parametrize(
    ("head", "status"),
    [
        (closing(b"X-A: " + b"a" * (LINE_BYTES - 3)), b"200"),
        (closing(b"X-A: " + b"a" * (LINE_BYTES - 2)), b"431"),
        (closing(*[b"X-A: " + b"a" * 7000] * 4), b"200"),
        (closing(*[b"X-A: " + b"a" * 7000] * 5), b"431"),
        (closing(*[b"a: b"] * (HEADERS - 2)), b"200"),
        (closing(*[b"a: b"] * (HEADERS - 1)), b"431"),
        (closing().replace(b"/health", b"/health?" + b"a" * (LINE_BYTES - 8)), b"200"),
        (closing().replace(b"/health", b"/health?" + b"a" * (LINE_BYTES - 7)), b"414"),
    ],
)
def test_each_limit_is_exact(served, head, status, sent):
    step = len(head) if sent == b"whole" else 1500
    assert asked(served, *[head[i : i + step] for i in range(0, len(head), step)]).startswith(b"HTTP/1.1 " + status)


def test_a_limit_holds_for_every_request_of_a_connection(served):
    first = START + b"\r\n"
    told = asked(served, first + first + closing(b"X-A: " + b"a" * 2 * LINE_BYTES))
    assert re.findall(rb"HTTP/1.1 (\d+)", told) == [b"200", b"200"]  # those before it are answered
    with connected(served) as connection:
        connection.sendall(first)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(closing(b"X-A: " + b"a" * 2 * LINE_BYTES))
        assert replies(connection).startswith(b"HTTP/1.1 431")


def test_a_long_body_counts_as_no_head_and_the_next_request_follows(served):
    body = json.dumps({"id": "x" * 300_000}).encode()
    post = (
        b"POST /v1/video-upload/decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    )
    told = asked(served, post + body + START[:10], START[10:] + b"Connection: close\r\n\r\n")
    assert re.findall(rb"HTTP/1.1 (\d+)", told) == [b"422", b"200"]


@pytest.mark.parametrize("trailer", [b"Authorization: Bearer x\r\n", b"a: b\r\n" * 500])
def test_what_follows_a_body_is_no_header(served, trailer):
    told = asked(served, CHUNKED + trailer + b"\r\n" + closing())
    assert re.findall(rb"HTTP/1.1 (\d+)", told) == [b"422", b"200"]


def test_a_trailer_without_end_is_cut_and_not_held(served):
    before = memory(served)
    with connected(served) as connection:
        connection.sendall(CHUNKED + b"X-A: ")
        with pytest.raises(ConnectionError):
            connection.sendall(b"a" * 50 * MIB)
    assert memory(served) < before + 10


def test_line_breaks_without_end_are_cut(served):
    assert asked(served, b"\r\n" * HEAD_BYTES).startswith(b"HTTP/1.1 431")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"CONNECT example.com:443 HTTP/1.1", 405),
        (b"CONNECT / HTTP/1.1", 405),
        (b"GET http://localhost HTTP/1.1", 400),
        (b"GET http://[ HTTP/1.1", 400),
        (b"GET /h\xe9 HTTP/1.1", 400),
        (b"FOO / HTTP/1.1", 400),
        (b"PRI * HTTP/2.0", 400),
        (b"TRACE /health HTTP/1.1", 405),
        (b"OPTIONS * HTTP/1.1", 404),
        (b"GET http://localhost/health HTTP/1.1", 200),
    ],
)
@pytest.mark.parametrize("sent", ["whole", "by byte"])
def test_any_method_and_target_gets_an_answer(served, capfd, request_line, status, sent):
    data = request_line + b"\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    told = asked(served, *([data] if sent == "whole" else [bytes([byte]) for byte in data]))
    assert told.startswith(b"HTTP/1.1 %d" % status)
    assert status == 200 or json.loads(told.partition(b"\r\n\r\n")[2])["error"]
    assert capfd.readouterr().err == ""  # the server's too: no traceback


def test_an_upgrade_is_ignored_and_refused_if_its_body_would_be_lost(served):
    upgrade = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
    assert asked(served, START + upgrade + b"\r\n").startswith(b"HTTP/1.1 200")
    post = START.replace(b"GET", b"POST") + upgrade + b"Content-Length: %d\r\n\r\n" % len(closing()) + closing()
    told = asked(served, post)
    assert re.findall(rb"HTTP/1.1 (\d+)", told) == [b"400"]  # the body is not taken for a request
    assert b"send no header Upgrade" in told


def test_few_requests_may_wait_on_one_connection(served):
    with connected(served) as connection:
        connection.sendall((START + b"\r\n") * (PIPELINED + 2))
        told = b""
        with suppress(ConnectionResetError):
            told = replies(connection)
    assert told.count(b"HTTP/1.1 200") <= PIPELINED
    assert asked(served, (START + b"\r\n") * (PIPELINED // 2) + closing()).count(b"HTTP/1.1 200") == PIPELINED // 2 + 1


def decide(decision_id: str, *headers: bytes) -> bytes:
    body = json.dumps({"context": {"bandwidth_kbps": 900, "connection": "4g"}, "id": decision_id}).encode()
    stated = (b"Content-Type: application/json", b"Content-Length: %d" % len(body), *headers)
    return b"POST /v1/video-upload/decide HTTP/1.1\r\nHost: localhost\r\n" + b"\r\n".join(stated) + b"\r\n\r\n" + body


def ids(found: bytes) -> list[str]:
    return [one.decode() for one in re.findall(rb'\{"id":"([^"]+)"', found)]


def test_requests_in_one_piece_in_several_and_pipelined_are_answered_in_order(served):
    last = decide("last", b"Connection: close")
    for cut in (1, 60, len(last) - 30, len(last) - 1):
        assert ids(asked(served, decide(f"whole {cut}"), last[:cut], last[cut:])) == [f"whole {cut}", "last"]
    many = b"".join(decide(f"p{i}") for i in range(20))
    refused = decide("").replace(b'"id": ""', b'"id": []')
    found = asked(served, many + refused + START + b"\r\n" + last)
    assert ids(found) == [*(f"p{i}" for i in range(20)), "last"]
    assert re.findall(rb"HTTP/1.1 (\d+)", found) == [b"200"] * 20 + [b"422", b"200", b"200"]


def test_a_connection_stays_open_after_a_request_that_is_refused_at_once(tmp_path):
    worlds.made(str(tmp_path / "video"))
    with server(tmp_path / "video", log_timeout=30, header_seconds=0.5) as served, connected(served) as connection:
        connection.sendall(decide("a").replace(b'"id"', b'"di"'))
        refusal = b""
        while not refusal.endswith(b"}"):
            refusal += connection.recv(65536)
        assert refusal.startswith(b"HTTP/1.1 422")
        time.sleep(1.0)  # longer than a head may take: the time limit on heads must not run now
        connection.sendall(decide("b"))
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_an_idle_connection_is_closed_and_the_time_begins_with_its_last_reply(tmp_path):
    worlds.made(str(tmp_path / "video"))
    with server(tmp_path / "video", log_timeout=30, timeout_keep_alive=2) as served, connected(served) as connection:
        for name, pause in (
            ("a", 1.5),
            ("b", 1.2),
            ("c", 0.0),
        ):  # the first timer ends in the second
            connection.sendall(decide(name))
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            time.sleep(pause)
        began = time.monotonic()
        assert connection.recv(65536) == b""
        assert 1.0 < time.monotonic() - began < 15
