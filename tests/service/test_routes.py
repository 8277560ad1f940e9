"""The endpoint table: every row is dispatched, documented and scoped, and nothing else is."""

import asyncio
import inspect
import re
from pathlib import Path

import pytest
import worlds
from service_examples import opened

from potstill.service import wire
from potstill.service.auth import Guard
from potstill.service.dashboard.views import VIEWS
from potstill.service.endpoints import ProblemEndpoints, ServiceEndpoints
from potstill.service.openapi import document
from potstill.service.routes import PROBLEM_ENDPOINTS, REFUSALS, SERVICE_ENDPOINTS
from potstill.service.schemas import FIELDS, FIELDS_OF
from potstill.service.tokens import SCOPES, TokenFile

ROWS = [*PROBLEM_ENDPOINTS, *SERVICE_ENDPOINTS]
PREFIX = "/v1/video-upload/"


@pytest.fixture
def workspace(tmp_path):
    return worlds.made(str(tmp_path / "video"))


def path_of(row):
    return f"{PREFIX if row in PROBLEM_ENDPOINTS else '/'}{row.path}"


def test_every_row_is_dispatched_and_nothing_else_is(workspace):
    async def work():
        async with opened(workspace) as asker:
            return {path: set(methods) for path, methods in asker.app.routes.items()}

    expected = {path_of(row): {"GET", "HEAD"} if row.method == "GET" else {row.method} for row in ROWS}
    found = asyncio.run(work())
    pages = {
        path for path in found if path in ("/", "/p/video-upload") or path.startswith(("/p/video-upload/", "/static/"))
    }
    assert {path: methods for path, methods in found.items() if path not in pages} == expected
    assert {"/", *(f"/p/video-upload/{view.name}" for view in VIEWS)} <= pages


def test_every_row_is_documented_and_nothing_else_is(workspace):
    paths = document([workspace.problem], closed={workspace.problem.name})["paths"]
    assert {(path, method.upper()) for path, methods in paths.items() for method in methods} == {
        (path_of(row), row.method) for row in ROWS
    }
    for row in ROWS:
        shown = paths[path_of(row)][row.method.lower()]
        stated = {str(status) for status in row.refusals} | ({"401", "403"} if row.scope else set())
        assert stated <= shown["responses"].keys()
        assert ("requestBody" in shown) == bool(row.request) == bool(row.limit)


@pytest.mark.parametrize("row", ROWS, ids=path_of)
def test_every_row_needs_its_scope(workspace, row):
    tokens = TokenFile(workspace.storage)
    allowed = {scope: tokens.create(scope, [scope]) for scope in SCOPES}

    async def status(asker, token):
        headers = {"content_type": "application/json", **({"authorization": f"Bearer {token}"} if token else {})}
        return (await asker.ask(row.method, path_of(row), b"{}" if row.request else b"", headers)).status

    async def work():
        async with opened(workspace, guards={workspace.problem.name: Guard(tokens)}) as asker:
            assert await status(asker, None) in ((401,) if row.scope else (200,))
            for scope, token in allowed.items():
                assert (await status(asker, token) == 403) == (row.scope is not None and scope != row.scope)

    asyncio.run(work())


def test_every_handler_is_a_row():
    for kind, rows in ((ProblemEndpoints, PROBLEM_ENDPOINTS), (ServiceEndpoints, SERVICE_ENDPOINTS)):
        methods = {name for name, _ in inspect.getmembers(kind, inspect.iscoroutinefunction) if name[0] != "_"}
        assert methods == {row.handler for row in rows}


def test_every_refusal_has_a_text():
    assert {status for row in ROWS for status in row.refusals} | {401, 403} == set(REFUSALS)


def test_every_field_of_a_decision_is_described():
    for kind in (wire.DecideRequest, wire.Observation, wire.DecideReply):
        for field in set(kind.__struct_fields__) - {"rewards"}:
            assert field in FIELDS or (kind.__name__, field) in FIELDS_OF, (kind, field)


def test_every_status_of_a_refusal_is_in_the_documented_table():
    root = Path(__file__).parents[2]
    sources = "".join(path.read_text(encoding="utf-8") for path in (root / "src/potstill/service").rglob("*.py"))
    used = {*re.findall(r"Refusal\(\s*(\d{3})", sources), *(str(status) for row in ROWS for status in row.refusals)}
    page = (root / "docs/service.md").read_text(encoding="utf-8")
    table = page.partition("| status | meaning |")[2].partition("\n\n")[0]
    assert {"404", "405", "409", "422"} <= used
    assert used <= {*re.findall(r"\b\d{3}\b", table)}
