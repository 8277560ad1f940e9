"""Connections are limited so that the log has descriptors, and idle ones make room for new ones."""

import resource
import socket
from types import SimpleNamespace

import pytest
import worlds
from service_process import serving

from potstill.service.process.connections import FEWEST, MOST, make_room, most_connections

CONTEXT = {"bandwidth_kbps": 900.0, "connection": "4g"}


class Connection(SimpleNamespace):
    """A connection that has been idle since some moment; None if a request is in work."""

    def __init__(self, idle_since):
        super().__init__(idle_since=idle_since, closed=False, transport=self)

    __hash__ = object.__hash__

    def close(self):
        self.closed = True


def test_the_longest_idle_are_closed_and_none_in_work():
    connections = [Connection(since) for since in (None, *range(100), None)]
    newest = Connection(-1.0)
    assert make_room({*connections, newest}, newest)
    assert [one.idle_since for one in connections if one.closed] == [0, 1, 2, 3, 4]
    assert not newest.closed
    assert not make_room({connections[0], newest}, newest)


@pytest.mark.parametrize(
    ("soft", "most"), [(128, 128 - 60), (1024, 1024 - 60), (20, FEWEST), (10**6, MOST), (resource.RLIM_INFINITY, MOST)]
)
def test_the_limit_follows_that_of_open_files(monkeypatch, soft, most):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert most_connections(1) == most
    assert most_connections(2) <= most


def test_with_128_descriptors_and_more_connections_every_decision_is_logged(tmp_path):
    """Segments are closed after every decision, so that the log opens a file for each."""
    workspace = worlds.made(str(tmp_path / "video"), config=b"[log]\nrotate_bytes = 1\n")
    held = []
    with serving(tmp_path / "out", workspace.url, "--workers", "1", open_files=128) as service:
        try:
            for _ in range(40):
                for _ in range(8):
                    held.append(socket.create_connection(("127.0.0.1", service.port)))
                    held[-1].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert service.ask("POST", "/v1/video-upload/decide", {"context": CONTEXT})[0] == 200
            assert service.ask("GET", "/ready")[0] == 200
            assert service.ask("GET", "/health?" + "a" * 10_000)[0] == 414
            assert b'potstill_refused_total{problem="",reason="head"} 1.0' in service.ask("GET", "/metrics")[1]
        finally:
            for connection in held:
                connection.close()
        assert service.errors == ""
        assert service.stop() == 0
