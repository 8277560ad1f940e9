"""Names that a page elsewhere has pointed at this machine."""

import asyncio

import pytest

from potstill.service import allowed_hosts
from potstill.service.allowed_hosts import HOST_BYTES, KNOWN, AllowedHosts, is_local
from potstill.service.auth import Guard
from potstill.service.tokens import TokenFile
from potstill.storage import open_storage


@pytest.mark.parametrize(
    "host", [b"localhost", b"localhost:8080", b"LOCALHOST", b"127.0.0.1", b"127.0.0.1:8080", b"127.1.2.3", b"[::1]:80"]
)
def test_names_of_this_machine(host):
    assert is_local(host)


@pytest.mark.parametrize(
    "host",
    b" evil.example evil.example:8080 localhost.evil.example 127.0.0.1.evil.example 10.0.0.1 0.0.0.0 1 \xff "
    b"[fe80::1] [::1].evil.example:80 [::1 ::1 localhost:80:80 localhost@evil.example".split(b" "),
)
def test_other_names(host):
    assert not is_local(host)


def test_only_valid_hosts_are_kept_and_few_of_them():
    for host in (b"a" * (HOST_BYTES + 1), b"a b", b"\xff" * 50, b"<script>", b"localhost:999999"):
        assert not is_local(host)
        assert host not in allowed_hosts._known
    for number in range(3 * KNOWN):
        assert not is_local(b"host-%d.example" % number)
        assert is_local(b"localhost:%d" % number)
    assert sum(map(len, allowed_hosts._known)) <= KNOWN * HOST_BYTES


def answer(app, host):
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "headers": [(b"host", host)]}
    asyncio.run(app(scope, None, send))
    return sent[0]["status"]


async def inner(_scope, _receive, send):
    await send({"status": 200})


def test_only_while_it_is_open(tmp_path):
    file = TokenFile(open_storage(tmp_path))
    guard = Guard(file)
    app = AllowedHosts(inner, [guard])
    assert answer(app, b"evil.example") == 403
    assert answer(app, b"localhost:8080") == 200
    file.create("web", ["decide"])
    guard.reload()
    assert answer(app, b"evil.example") == 200  # whoever calls needs a token, which no page has
