"""The shell of the pages: who sees what, what is sent with it, and that no text becomes markup."""

import asyncio
import gzip
import re

import pytest
import worlds
from service_examples import Asker, opened

import potstill as ps
from potstill.service.app import App
from potstill.service.auth import Guard
from potstill.service.dashboard.assets import assets
from potstill.service.dashboard.html import Html, join, tag
from potstill.service.dashboard.parts import (
    Series,
    bar,
    between,
    chart,
    interval,
    number,
    reward,
    table,
    url,
    value,
)
from potstill.service.dashboard.views import VIEWS
from potstill.service.limits import Options
from potstill.service.tokens import TokenFile
from potstill.workspace import Workspace

HOSTILE = "<script>alert(1)</script>\" onload='x' & \u202eright to left\0 \ud800"


@pytest.fixture
def workspace(tmp_path):
    return worlds.made(str(tmp_path / "video"))


def page(workspace, path, *, guards=None, **headers):
    async def work():
        async with opened(workspace, guards=guards or {}) as asker:
            return await asker.get(path, **headers)

    return asyncio.run(work())


def test_what_is_not_markup_is_escaped():
    shown = tag("p", HOSTILE, title=HOSTILE)
    assert "<script" not in shown
    assert re.fullmatch(r'<p title="[^"<>]*">[^<>]*</p>', shown)
    shown.encode()
    assert join(Html("<b>"), "<b>", 1, None, [2, "&"]) == "<b>&lt;b&gt;12&amp;"
    assert tag("input", disabled=True, hidden=False, for_="a", data_x=1) == '<input disabled for="a" data-x="1">'


def test_parts_escape_what_they_are_given():
    long = HOSTILE * 400
    for shown in (
        value(HOSTILE),
        value(long),
        value({"a": HOSTILE[:-1]}),
        table((HOSTILE,), [(HOSTILE,)], caption=HOSTILE),
        bar(0.5, HOSTILE),
    ):
        assert "<script" not in shown
        assert not re.search(r"<[^>]*\son\w+=", re.sub(r'"[^"]*"', '""', shown))
    assert "<details" in value(long)
    assert "<script" not in chart(HOSTILE[:-1], [1.0], [Series(HOSTILE[:-1], [1.0])])


def test_addresses_quote_what_they_are_given():
    assert url("a/b?é", "decisions", id="x&y=1 #", unit=None) == "/p/a%2Fb%3F%C3%A9/decisions?id=x%26y%3D1+%23"


def test_numbers_are_short_and_say_when_there_is_none():
    assert [number(x) for x in (None, float("nan"), 0.0, 1234567.0, 0.123456, 1234.5)] == [
        "–", "–", "0", "1,234,567", "0.123", "1,234"
    ]  # fmt: skip


def test_intervals_have_the_digits_that_their_width_is_worth():
    """Two digits of the half-width, in any unit of rewards: a click rate, a rating, a revenue."""
    assert interval(0.5, 0.25, 1) == "0.50 (0.25 to 1.00)"
    assert interval(0.00213, 0.00187, 0.00241) == "0.00213 (0.00187 to 0.00241)"
    assert interval(12345.6, 12011.1, 12680.1) == "12,346 (12,011 to 12,680)"
    assert interval(-0.031, -0.04, 0.001, signed=True) == "−0.031 (−0.040 to +0.001)"
    assert interval(0.0, 0.0, 0.0) == "0.000 (0.000 to 0.000)"
    assert (interval(0.25, None, None), between(None, 1.0), between(0.1, 0.2)) == ("0.25", "–", "0.100 to 0.200")
    assert [reward(x) for x in (None, 1.0, 0.9, -0.5, 0.0001, 12345.0)] == [
        "–", "1.000", "0.900", "−0.500", "0.0001", "12,345"
    ]  # fmt: skip


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_every_view_shows_every_type_of_feature_and_hostile_names(tmp_path, view):
    name = HOSTILE[:-1].replace('"', "").replace("\0", "")
    problem = ps.Problem(
        name="every",
        context=[
            ps.Numeric(name + "n", low=0, high=1),
            ps.Boolean(name + "b"),
            ps.Categorical(name + "c", [HOSTILE[:-1], "\u202e", "'"]),
            ps.Hashed(name + "h", size=4),
            ps.Vector(name + "v", size=2, missing="flag"),
            ps.Text(name + "t", size=4),
            ps.Timestamp(name + "at"),
            ps.Timestamp(name + "ms", unit="ms", missing="flag"),
        ],
        actions=ps.Discrete([HOSTILE[:-1], "b"]),
    )
    problem.save(tmp_path / "every.toml")
    workspace = Workspace.create(tmp_path / "w", (tmp_path / "every.toml").read_bytes(), b"")
    shown = page(workspace, f"/p/every/{view.name}")
    assert shown.status == 200
    assert b"<script>alert" not in shown.body


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_every_view_is_a_page_and_a_fragment(workspace, view):
    whole = page(workspace, f"/p/video-upload/{view.name}")
    part = page(workspace, f"/p/video-upload/{view.name}", hx_request="true")
    assert whole.status == part.status == 200
    assert whole.body.startswith(b"<!doctype html>")
    assert not part.body.startswith(b"<!doctype html>")
    assert f'href="/p/video-upload/{view.name}" aria-current="page"'.encode() in whole.body
    for reply in (whole, part):
        assert reply.headers["content-type"] == "text/html; charset=utf-8"
        assert reply.headers["cache-control"] == "no-store"
        assert "'unsafe" not in reply.headers["content-security-policy"]
        assert reply.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_without_the_scope_read_a_page_shows_nothing_of_the_problem(workspace, view):
    file = TokenFile(workspace.storage)
    tokens = {scope: file.create(scope, [scope]) for scope in ("read", "decide", "admin")}
    guards = {"video-upload": Guard(file)}
    path = f"/p/video-upload/{view.name}"
    for headers in ({}, {"authorization": f"Bearer {tokens['decide']}"}, {"authorization": "Bearer pst_no"}):
        whole = page(workspace, path, guards=guards, **headers)
        assert whole.status == 200
        assert b'id="token-form"' in whole.body
        assert b"360p" not in whole.body
        assert b"bandwidth" not in whole.body
        part = page(workspace, path, guards=guards, hx_request="true", **headers)
        assert part.status in (401, 403)
        assert b"360p" not in part.body
    seen = page(workspace, path, guards=guards, authorization=f"Bearer {tokens['read']}")
    assert b'id="token-form"' not in seen.body


def test_the_list_shows_the_problems_that_the_caller_may_read(tmp_path):
    first = worlds.made(str(tmp_path / "open"), problem=worlds.PROBLEM.replace(b"video-upload", b"open-one"))
    second = worlds.made(str(tmp_path / "closed"), problem=worlds.PROBLEM.replace(b"video-upload", b"closed-one"))
    file = TokenFile(second.storage)
    token = file.create("web", ["read"])
    guards = {"open-one": Guard(TokenFile(first.storage)), "closed-one": Guard(file)}

    async def work():
        app = App([first, second], Options(guards=guards, log_timeout=30.0))
        await app.open()
        try:
            asker = Asker(app, "/")
            return await asker.get("/"), await asker.get("/", authorization=f"Bearer {token}")
        finally:
            await app.close()

    without, given = asyncio.run(work())
    assert b"open-one" in without.body
    assert b"closed-one" not in without.body
    assert b"Another problem is not shown" in without.body
    assert b"open-one" in given.body
    assert b"closed-one" in given.body
    assert b"not shown" not in given.body


def test_files_are_kept_for_ever_and_small(workspace):
    sent = 0
    for path, asset in assets().items():
        plain = page(workspace, path, accept_encoding="identity, gzip;q=0")
        packed = page(workspace, path, accept_encoding="gzip, deflate, br")
        assert plain.body == asset.data == gzip.decompress(packed.body)
        assert (plain.headers.get("content-encoding"), packed.headers["content-encoding"]) == (None, "gzip")
        assert plain.headers["etag"] != packed.headers["etag"]
        for reply in (plain, packed):
            assert reply.status == 200
            assert "immutable" in reply.headers["cache-control"]
            assert reply.headers["vary"] == "accept-encoding"
            assert page(workspace, path, if_none_match=reply.headers["etag"]).status == 304
        sent += len(packed.body)
    assert sent <= 100_000


def test_an_address_that_does_not_fit_is_said(workspace):
    reply = page(workspace, f"/p/video-upload/versions?{'&'.join(f'a{i}=1' for i in range(200))}")
    assert reply.status in (200, 422)
    assert page(workspace, "/p/video-upload/nothing").status == 404
