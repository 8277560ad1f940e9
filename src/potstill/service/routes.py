"""Which endpoint answers which path, what a token must allow for it, and how large a body it takes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from potstill.service.endpoints import Endpoints, Whole
from potstill.service.http import Headers, Reply
from potstill.service.limits import Options
from potstill.service.problem_service import Served
from potstill.service.tokens import Scope

Handler = Callable[[bytes, Headers], Awaitable[Reply]]


class Route(NamedTuple):
    """An endpoint.

    Attributes:
        handle: answers, given the body and the headers of a request.
        served: the problem that it belongs to; None if to none.
        scope: what a token for that problem must allow.
        max_body: the most bytes that it takes; 0 if it takes no body.
    """

    handle: Handler
    served: Served | None = None
    scope: Scope = "read"
    max_body: int = 0


#: By path, then by method.
Routes = dict[str, dict[str, Route]]


def of_problem(served: Served, options: Options) -> Routes:
    """The endpoints of one problem."""
    endpoints = Endpoints(served, options.max_batch)
    small, large = options.max_body, options.max_batch_body
    post = {
        "decide": Route(endpoints.decide, served, "decide", small),
        "decide/batch": Route(endpoints.decide_batch, served, "decide", large),
        "reward": Route(endpoints.reward, served, "reward", large),
        "observe": Route(endpoints.observe, served, "reward", large),
        "admin/rollback": Route(endpoints.rollback, served, "admin", small),
        "admin/mode": Route(endpoints.mode, served, "admin", small),
    }
    get = {
        "policy": Route(endpoints.policy, served),
        "problem": Route(endpoints.problem, served),
        "status": Route(endpoints.status, served),
    }
    prefix = f"/v1/{served.name}/"
    return {prefix + path: {"POST": route} for path, route in post.items()} | _read(prefix, get)


def of_service(whole: Whole) -> Routes:
    """The endpoints of no problem. Those that need a token look themselves which problems it is for."""
    get = {
        "health": Route(whole.health),
        "ready": Route(whole.ready),
        "metrics": Route(whole.metrics),
        "openapi.json": Route(whole.openapi),
        "docs": Route(whole.docs),
    }
    return _read("/", get)


def _read(prefix: str, get: dict[str, Route]) -> Routes:
    return {prefix + path: {"GET": route, "HEAD": route} for path, route in get.items()}
