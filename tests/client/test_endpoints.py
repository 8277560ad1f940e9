"""The clients call endpoints of the service's table, with the methods, types and statuses that it states."""

import inspect

import pytest

pytest.importorskip("prometheus_client", reason="needs the service")

from potstill.client import Retry, calls
from potstill.client.sansio import Reply
from potstill.client.wire import DecideRequest
from potstill.service.reads import ReadEndpoints
from potstill.service.routes import PROBLEM_ENDPOINTS

RETRY = Retry()
ASKED = DecideRequest(context={}, id="a", eligible=None, unit=None, action=None)
CALLS = {
    "decide": lambda: calls.decide(ASKED, RETRY),
    "decide_batch": lambda: calls.decide_batch([ASKED], RETRY),
    "reward": lambda: calls.post_rows("reward", "rewards", [b"{}"], RETRY),
    "observe": lambda: calls.post_rows("observe", "observations", [b"{}"], RETRY),
    "policy": lambda: calls.policy(RETRY),
    "changed_policy": lambda: calls.changed_policy('"x"', RETRY),
    "status": lambda: calls.status(RETRY),
}
ROWS = {(row.method, row.path): row for row in PROBLEM_ENDPOINTS}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_is_an_endpoint_of_the_table(name):
    request = next(CALLS[name]()).request
    row = ROWS[request.method, request.path]
    assert (request.body is not None) == bool(row.request)


@pytest.mark.parametrize("name", ["decide", "decide_batch", "reward", "observe", "status"])
def test_every_call_accepts_only_the_status_of_its_endpoint(name):
    for status in (200, 202):
        call = CALLS[name]()
        request = next(call).request
        if ROWS[request.method, request.path].status == status:
            continue
        with pytest.raises(calls.ServiceError, match=f"answered {status}"):
            call.send(Reply(status, {}, b"{}"))


def test_every_call_is_among_these():
    written = {name for name, _ in inspect.getmembers(calls, inspect.isgeneratorfunction) if name[0] != "_"}
    assert written - set(CALLS) == {"exchange", "post_rows"}


def test_every_endpoint_but_those_of_people_has_a_client():
    called = {(request.method, request.path) for request in (next(call()).request for call in CALLS.values())}
    shown = {row.path for row in PROBLEM_ENDPOINTS if hasattr(ReadEndpoints, row.handler)}
    assert {path for method, path in ROWS if (method, path) not in called} - shown == {
        "problem",
        "admin/rollback",
        "admin/stage",
        "admin/pin",
        "admin/unpin",
        "admin/pause",
        "admin/resume",
        "admin/promote",
        "admin/evaluate",
        "admin/mode",
        "admin/actions",
        "admin/items",
    }
