import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
import worlds
from service_examples import opened, running

from potstill.problem import MOST_METRICS
from potstill.service.http import Refusal
from potstill.service.limits import Disconnected, Load, most_values, refuse_crowded
from potstill.service.wire import MOST_REWARDS

BODY = json.dumps({"context": {"bandwidth_kbps": 900.0, "connection": "4g"}}).encode()
SECONDS = 0.5
MAX_BODY = 50_000


def load(**options) -> Load:
    return Load(**{"requests": 2, "bytes": 1000, "seconds": 60.0, **options})


def channel(*messages):
    """A channel that gives these messages, and then nothing for ever."""
    left = list(messages)

    async def receive():
        if not left:
            await asyncio.Event().wait()
        return left.pop(0)

    return receive


def part(body: bytes, *, more: bool) -> dict[str, object]:
    return {"type": "http.request", "body": body, "more_body": more}


def read(receive, limit=100, stated=None, **options) -> bytes:
    return asyncio.run(load(**options).read(receive, limit, stated))


def status_of(work) -> int:
    with pytest.raises(Refusal) as caught:
        work()
    return caught.value.status


def test_a_body_is_read_whole():
    assert read(channel(part(b"abc", more=False))) == b"abc"
    assert read(channel(part(b"ab", more=True), part(b"", more=True), part(b"c", more=False)), limit=3) == b"abc"


@pytest.mark.parametrize("stated", [b"101", b"-1", b"1e3", b"", b"\xb2", b"9" * 5000])
def test_a_stated_length_beyond_the_limit_is_refused_unread(stated):
    assert status_of(lambda: read(channel(), stated=stated)) == 413


def test_a_body_beyond_the_limit_is_refused_before_its_end_for_any_stated_length():
    assert status_of(lambda: read(channel(part(b"x" * 101, more=False)), stated=b"1")) == 413
    assert status_of(lambda: read(channel(part(b"x" * 60, more=True), part(b"x" * 60, more=True)))) == 413


def test_bodies_together_have_a_limit_too_and_leave_nothing_behind():
    async def work() -> None:
        limits = load(bytes=100)
        waiting = asyncio.create_task(limits.read(channel(part(b"x" * 80, more=True)), 100, None))
        await asyncio.sleep(0)
        with pytest.raises(Refusal) as caught:
            await limits.read(channel(part(b"x" * 30, more=True)), 100, None)
        assert caught.value.status == 503
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        limits.enter()
        body = await limits.read(channel(part(b"x" * 80, more=False)), 100, None)
        with pytest.raises(Refusal):  # it is in hand until it was answered
            await limits.read(channel(part(b"x" * 30, more=False)), 100, None)
        limits.leave(body)
        assert (limits.bytes, limits.requests) == (0, 0)

    asyncio.run(work())


def test_a_caller_who_is_gone_is_noticed():
    with pytest.raises(Disconnected):
        read(channel(part(b"x", more=True), {"type": "http.disconnect"}))


def test_a_body_that_never_ends_is_cut_and_one_that_is_cancelled_is_not_called_slow():
    async def work() -> None:
        limits = load(seconds=0.05)
        watching = asyncio.create_task(limits.watch())
        for receive in (channel(), channel(part(b"x", more=True))):
            with pytest.raises(Refusal) as caught:
                await limits.read(receive, 100, None)
            assert caught.value.status == 408
        watching.cancel()
        other = asyncio.create_task(limits.read(channel(), 100, None))
        await asyncio.sleep(0)
        other.cancel()
        assert (await asyncio.gather(other, watching, return_exceptions=True))[0].__class__ is asyncio.CancelledError

    asyncio.run(work())


def test_more_requests_than_can_be_answered_are_told_to_come_again(tmp_path):
    async def work() -> None:
        async with opened(worlds.made(str(tmp_path / "video")), max_in_flight=3) as asker:
            answers = await asyncio.gather(*[asker.post("decide", body=BODY) for _ in range(10)])
            statuses = sorted(answer.status for answer in answers)
            assert statuses == [200] * 3 + [503] * 7
            assert {a.headers.get("retry-after") for a in answers if a.status == 503} == {"1"}
            assert (await asker.post("decide", body=BODY)).status == 200
            asker.app._load.requests = 3
            assert (await asker.get("status")).status == 503
            assert (await asker.get("/health")).status == (await asker.get("/ready")).status == 200

    asyncio.run(work())


CONTEXT = {"bandwidth_kbps": 900.0, "connection": "4g"}
OBSERVED = {"id": "a", "context": CONTEXT, "action": "360p", "propensity": 0.5, "policy": 0, "time": 1.0}


def metrics(count: int) -> dict[str, float]:
    return {f"m{i}": 1.0 for i in range(count)}


@pytest.mark.parametrize(
    ("path", "within", "beyond", "named"),
    [
        (
            "observe",
            {"observations": [{**OBSERVED, "rewards": [{"reward": 0.5}] * MOST_REWARDS}]},
            {"observations": [{**OBSERVED, "rewards": [{"reward": 0.5}] * (MOST_REWARDS + 1)}]},
            f"length <= {MOST_REWARDS} - at `$.observations[0].rewards`",
        ),
        (
            "reward",
            {"id": "a", "reward": 0.5, "metrics": metrics(MOST_METRICS)},
            {"id": "a", "reward": 0.5, "metrics": metrics(MOST_METRICS + 1)},
            f"length <= {MOST_METRICS} - at `$.metrics`",
        ),
        (
            "decide",
            {"context": CONTEXT, "eligible": ["360p"]},
            {"context": CONTEXT, "eligible": ["360p"] * 5},
            "length <= 3 - at `$.eligible`",
        ),
        (
            "decide/batch",
            {"requests": [{"context": CONTEXT}] * 10},
            {"requests": [{"context": CONTEXT}] * 11},
            "at most 10 at a time, got 11",
        ),
    ],
)
def test_what_nests_is_limited_and_the_error_names_the_limit(tmp_path, path, within, beyond, named):
    async def work() -> None:
        async with opened(worlds.made(str(tmp_path / "video")), max_batch=10) as asker:
            assert (await asker.post(path, within)).status in (200, 202)
            told = await asker.post(path, beyond)
            assert told.status in (413, 422)
            assert named in told.json["error"]

    asyncio.run(work())


@pytest.mark.parametrize(
    ("path", "start", "item"),
    [
        ("reward", '{"rewards":[', {"id": "a", "reward": 1}),
        ("reward", '{"id":"a","reward":1,"metrics":[', {"m": 1, "n": 1}),
        ("decide/batch", '{"requests":[', {"context": CONTEXT, "eligible": ["360p"] * 300}),
        ("observe", '{"observations":[', {**OBSERVED, "rewards": [{"reward": 1}] * 300}),
    ],
)
def test_a_body_of_too_many_values_is_refused_undecoded(tmp_path, monkeypatch, path, start, item):
    """Decoded it would take many times its bytes, and seconds of the event loop."""
    text = json.dumps(item, separators=(",", ":"))
    body = (start + ",".join([text] * (200_000 // len(text))) + "]}").encode()

    async def work() -> None:
        workspace = worlds.made(str(tmp_path / "video"))
        async with opened(workspace, max_body=100_000, max_batch=10) as asker:
            monkeypatch.setattr(asker.app._problems[0].requests, "read_batch", None)  # decoding would fail
            monkeypatch.setattr(asker.app._problems[0].requests, "read_observe", None)
            told = await asker.post(path, body=body)
            assert told.status == 413
            assert f"at most {most_values(workspace.problem, 10)} values here" in told.json["error"]
            assert (asker.app._load.bytes, asker.app._load.requests) == (0, 0)

    asyncio.run(work())


def test_a_full_batch_of_large_items_has_fewer_values_than_allowed(problem):
    item = {"id": "a" * 50, "context": dict.fromkeys("abc", 1), "eligible": ["360p"] * 4, "unit": "u", "action": "360p"}
    body = json.dumps({"requests": [item] * 1000}).encode()
    refuse_crowded(body, most_values(problem, 1000))
    rewards = [{"id": "a", "reward": 0.5, "key": "k", "time": 1.0, "metrics": metrics(MOST_METRICS)}] * 1000
    refuse_crowded(json.dumps({"rewards": rewards}).encode(), most_values(problem, 1000))


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    """A server with little patience."""
    place = tmp_path_factory.mktemp("limits") / "video"
    worlds.made(str(place))
    limits = {"read_seconds": SECONDS, "header_seconds": SECONDS, "max_body": MAX_BODY, "max_in_flight": 20}
    with running(place, log_timeout=30, **limits) as started:
        yield started


@contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", httpx.URL(url).port), timeout=20) as connection:
        yield connection


def head(*more: str, path: str = "decide") -> bytes:
    lines = [f"POST /v1/video-upload/{path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", *more]
    return "\r\n".join([*lines, "", ""]).encode()


def answer(connection: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def is_well(url: str) -> bool:
    reply = httpx.post(
        f"{url}/v1/video-upload/decide", content=BODY, headers={"Content-Type": "application/json"}, timeout=20
    )
    return reply.status_code == 200


def test_a_body_that_comes_byte_by_byte_is_cut(url):
    with connected(url) as connection:
        connection.sendall(head(f"Content-Length: {len(BODY)}"))
        try:
            for byte in BODY:
                connection.send(bytes([byte]))
                time.sleep(SECONDS / 10)
        except OSError:  # it was closed
            pass
        else:
            pytest.fail("the whole body was taken")
        told = answer(connection)
    assert told == b"" or told.startswith(b"HTTP/1.1 408")
    assert is_well(url)


def test_a_body_that_stops_is_told_so(url):
    with connected(url) as connection:
        connection.sendall(head(f"Content-Length: {len(BODY)}") + BODY[:5])
        told = answer(connection)
    assert told.startswith(b"HTTP/1.1 408")
    assert b"connection: close" in told


@pytest.mark.parametrize("sent", [b"", b"POST /v1/vid", head()[:-2]])
def test_a_connection_without_a_whole_head_is_cut(url, sent):
    with connected(url) as connection:
        connection.sendall(sent)
        assert answer(connection) == b""


def test_a_second_request_on_a_connection_has_no_more_time_for_its_head(url):
    with connected(url) as connection:
        connection.sendall(head(f"Content-Length: {len(BODY)}") + BODY + head()[:20])
        told = answer(connection)
    assert told.count(b"HTTP/1.1") == 1
    assert told.startswith(b"HTTP/1.1 200")


def test_a_body_that_states_too_much_is_refused_before_it_is_sent(url):
    with connected(url) as connection:
        connection.sendall(head(f"Content-Length: {MAX_BODY + 1}"))
        assert answer(connection).startswith(b"HTTP/1.1 413")


def test_a_body_without_end_is_refused_while_it_streams(url):
    with connected(url) as connection:
        connection.sendall(head("Transfer-Encoding: chunked"))
        chunk = b"2710\r\n" + b"x" * 10_000 + b"\r\n"
        sent = 0
        try:
            while sent < 100 * MAX_BODY:
                connection.sendall(chunk)
                sent += len(chunk)
        except OSError:
            pass
        assert sent < 100 * MAX_BODY
    assert is_well(url)


def test_a_body_that_trickles_on_after_its_answer_is_cut(url):
    with connected(url) as connection:
        connection.sendall(head("Content-Length: 1000000", path="nothing"))
        assert connection.recv(65536).startswith(b"HTTP/1.1 404")
        for _ in range(40):
            time.sleep(SECONDS / 10)
            try:
                connection.send(b"x")
            except OSError:
                return
        pytest.fail("it was taken on and on")


def test_those_who_leave_in_the_middle_hold_nothing(url):
    for _ in range(30):  # more than are answered at a time
        with connected(url) as connection:
            connection.sendall(head(f"Content-Length: {len(BODY)}") + BODY[:5])
    assert is_well(url)


def test_what_is_no_http_is_refused(url):
    with connected(url) as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        assert answer(connection).startswith(b"HTTP/1.1 400")
    assert is_well(url)
