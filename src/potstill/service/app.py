"""The service as an ASGI application: dispatch by the endpoint table, and startup and shutdown."""

from __future__ import annotations

import asyncio
import gc
import logging
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from potstill.errors import PotstillError
from potstill.events import LogUnavailable, read_scrub
from potstill.registry import OtherProblem
from potstill.service import personalizer, routes
from potstill.service.auth import check
from potstill.service.dashboard import pages
from potstill.service.endpoints import ProblemEndpoints, ServiceEndpoints
from potstill.service.http import (
    CLOSE,
    JSON,
    Headers,
    Receive,
    Refusal,
    Reply,
    Scope,
    Send,
    header,
    refused,
    reply_at_once,
    send_reply,
)
from potstill.service.limits import Disconnected, Load, Options, most_values, refuse_crowded
from potstill.service.metrics import NullRecorder, ProblemGauges
from potstill.service.problem_service import ProblemService
from potstill.service.status import clock_step, log_status, unused_rewards, watermark_lags
from potstill.service.summary_metrics import read_gauges
from potstill.service.tokens import Scope as TokenScope
from potstill.workspace import Workspace

_logger = logging.getLogger(__name__)
#: Seconds between two looks for tokens that were created or revoked.
TOKEN_SECONDS = 1.0
#: Seconds between two looks whether a service that another one follows still answers requests.
_LEAVE = 0.05


def create_app(workspaces: Sequence[Workspace], options: Options | None = None) -> Any:
    """An ASGI application that serves workspaces. It opens their logs at startup.

    Raises:
        ValueError: Two workspaces have the same problem name, or a configuration is invalid.
    """
    options = options or Options()
    app = App(workspaces, options)
    if not options.cors:
        return app
    from starlette.middleware.cors import CORSMiddleware

    return CORSMiddleware(
        app,
        allow_origins=list(options.cors),
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type", "If-None-Match", *_key_header(options)],
        expose_headers=["ETag", "Retry-After", "X-Potstill-Time", "X-Potstill-Version"],
    )


class Route(NamedTuple):
    """A row of the endpoint table, bound to what answers it.

    Attributes:
        handle: Answers, given the body and the headers of a request; before them the event, if it is Personalizer's.
        service: The problem; None for an endpoint of the service.
        scope: Scope that a token for that problem needs.
        max_body: The most bytes of a body; 0 if it takes none.
        max_values: The most values of a body that is longer than that of a single request.
        query: Whether it is given the query string of the address in place of a body.
    """

    handle: Callable[..., Awaitable[Reply]]
    service: ProblemService | None = None
    scope: TokenScope = "read"
    max_body: int = 0
    max_values: int = 0
    query: bool = False


class App:
    """The application; see `create_app`."""

    def __init__(self, workspaces: Sequence[Workspace], options: Options) -> None:
        _refuse_same_names(workspaces)
        self._options = options
        metrics = options.metrics(self._gauges) if options.metrics else None
        self._recorder = metrics.of("") if metrics else NullRecorder()
        self._problems = [
            ProblemService(
                workspace,
                metrics.of(workspace.problem.name) if metrics else NullRecorder(),
                log_timeout=options.log_timeout,
                idempotency_size=options.idempotency_size,
                shared=options.shared_ids(workspace.problem.name) if options.shared_ids else None,
            )
            for workspace in workspaces
        ]
        self._whole = ServiceEndpoints(self._problems, options, metrics)
        self._bind()
        self._following = [asyncio.Lock() for _ in self._problems]
        self._closing = False
        self._leaving: set[asyncio.Task[None]] = set()
        for place, service in enumerate(self._problems):
            service.follow = partial(self._follow, place)
        self._load = Load(
            requests=options.max_in_flight, bytes=options.max_bytes_in_flight, seconds=options.read_seconds
        )
        self._background: list[asyncio.Task[None]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or start and stop with the server."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._lifespan(receive, send)
            return
        route: Route | None = None
        try:
            route = self._route(scope)
            query = scope.get("query_string", b"") if route.query else b""
            reply = await self._handle(route, scope["headers"], receive, query)
        except Refusal as refusal:
            recorder = route.service.recorder if route and route.service else self._recorder
            recorder.count_refusal(refusal.reason)
            reply = self._refused(refusal, scope)
        except Disconnected:
            return
        except Exception as error:
            reply = self._refused(_failed(error), scope)
        if not reply_at_once(send, reply):
            await send_reply(send, reply)

    async def open(self) -> None:
        """Open the logs, and start to follow the registries."""
        for place, service in enumerate(list(self._problems)):
            await service.open()
            if service.snapshots.following is not None:  # a worker that is restarted after the actions have changed
                service = await self._follow(place)
            seconds = self._options.reload_seconds or service.workspace.config.serve.reload_seconds
            self._background.append(asyncio.create_task(_repeat(seconds, partial(self._follow, place))))
        self._background.append(asyncio.create_task(_repeat(TOKEN_SECONDS, self._reload_tokens)))
        self._background.append(asyncio.create_task(self._load.watch()))

    async def close(self) -> None:
        """Commit what is pending, and close the logs."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._background.clear()
        self._closing = True
        await asyncio.gather(*self._leaving)
        for service in self._problems:
            await service.close()

    def _bind(self) -> None:
        """Bind the endpoint tables to the present services."""
        self.routes = _routes(self._problems, self._whole, self._options)
        own = self._options.personalizer
        self.personalizer_routes = _personalizer_routes(self._problems, self._options) if own else {}

    async def _follow(self, place: int) -> ProblemService:
        """Look for changes of a problem. Where its actions have changed, another service takes its place.

        Requests are dispatched to one of them or the other, and none is refused in between.
        """
        async with self._following[place]:
            before = self._problems[place]
            await before.reload()
            problem = before.snapshots.following
            if problem is None:
                return before
            try:
                after = await _opened(before.successor(problem))
            except (PotstillError, OSError) as error:
                before.snapshots.cannot_follow(error)
                return before
            after.follow = before.follow
            self._problems[place] = after
            self._bind()
            leaving = asyncio.create_task(self._leave(before))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            return after

    async def _leave(self, service: ProblemService) -> None:
        """Close a service that another one follows, when the requests that it has taken are answered."""
        service.hand_over()
        while (service.users or service.queries.busy) and not self._closing:
            await asyncio.sleep(_LEAVE)
        try:
            await service.close()
        except LogUnavailable as error:  # the requests that waited for it have been answered with an error
            _logger.error("%s: the log of the earlier actions could not be closed: %s", service.name, error)

    def _route(self, scope: Scope) -> Route:
        methods = self.routes.get(scope["path"])
        if methods is None and not self._is_own(scope):
            methods = self._personalizer(scope)
        if methods is None:
            raise Refusal(404, "unknown", "there is no endpoint at this path; /docs lists them, and / has the pages")
        route = methods.get(scope["method"])
        if route is None:
            allow = ", ".join(methods)
            raise Refusal(405, "unknown", f"this path accepts {allow} only", ((b"allow", allow.encode()),))
        return route

    def _refused(self, refusal: Refusal, scope: Scope) -> Reply:
        """A refusal in the shape that the caller knows."""
        return refused(refusal) if self._is_own(scope) else personalizer.refused(refusal)

    def _is_own(self, scope: Scope) -> bool:
        """Whether a request is none that Personalizer's interface answers."""
        return not self.personalizer_routes or not personalizer.is_personalizer(scope["path"])

    def _personalizer(self, scope: Scope) -> dict[str, Route] | None:
        """What answers a request to Personalizer, whose key becomes the token; None for an unknown address."""
        found = personalizer.match(scope["path"])
        if found is None:
            return None
        scope["headers"] = personalizer.with_key(scope["headers"])
        methods = self.personalizer_routes.get(found.row, {})
        bound = {name: one._replace(handle=partial(one.handle, found.event)) for name, one in methods.items()}
        return bound or None

    async def _handle(self, route: Route, headers: Headers, receive: Receive, query: bytes = b"") -> Reply:
        if route.service is None:  # probes and metrics are answered however many requests are in flight
            return await route.handle(query, headers)
        check(self._options.guards, route.service.name, headers, route.scope)
        body = query
        self._load.enter()
        route.service.users += 1
        try:
            if route.max_body:
                _refuse_other_types(headers)
                stated = header(headers, b"content-length")
                complete = self._load.complete(receive, route.max_body, stated)
                body = await self._load.read(receive, route.max_body, stated) if complete is None else complete
                if len(body) > self._options.max_body:
                    refuse_crowded(body, route.max_values)
            return await route.handle(body, headers)
        finally:
            route.service.users -= 1
            self._load.leave(body)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.open()
        except Exception as error:
            await self.close()
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        _tune_gc()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        try:
            await self.close()
        except Exception as error:
            await send({"type": "lifespan.shutdown.failed", "message": str(error)})
            return
        await send({"type": "lifespan.shutdown.complete"})

    async def _reload_tokens(self) -> None:
        for guard in set(self._options.guards.values()):
            await asyncio.to_thread(guard.reload)

    def _gauges(self) -> Iterator[ProblemGauges]:
        for service in self._problems:
            current = service.snapshots.current
            version = None if current.policy is None else current.policy.version
            yield ProblemGauges(
                service.name,
                version,
                log_status(service).lag_seconds,
                mode_fault=current.mode_fault is not None,
                pinned=current.pinned is not None,
                paused=current.paused is not None,
                unused=unused_rewards(service),
                watermarks=watermark_lags(service),
                clock_step=clock_step(service) / 1e6,
                damaged_files=len(read_scrub(service.workspace.spool).damaged),
                summaries=read_gauges(service.workspace.storage),
            )


#: By path, then by method.
Routes = dict[str, dict[str, Route]]


def _routes(problems: Sequence[ProblemService], whole: ServiceEndpoints, options: Options) -> Routes:
    """The endpoint table, bound to the problems and the service."""
    limits = {None: 0, "single": options.max_body, "batch": options.max_batch_body}
    found: Routes = {}
    for row in routes.SERVICE_ENDPOINTS:
        found.setdefault(f"/{row.path}", {}).update(_methods(row, Route(getattr(whole, row.handler))))
    for service in problems:
        endpoints = ProblemEndpoints(service, options)
        values = most_values(service.workspace.problem, options.max_batch)
        for row in routes.PROBLEM_ENDPOINTS:
            assert row.scope is not None  # every endpoint of a problem has one
            handle = getattr(endpoints, row.handler)
            route = Route(handle, service, row.scope, limits[row.limit], values, row.query is not None)
            found.setdefault(f"/v1/{service.name}/{row.path}", {}).update(_methods(row, route))
    for path, page in pages(problems, options):
        found[path] = dict.fromkeys(("GET", "HEAD"), Route(page, query=True))
    return found


def _personalizer_routes(problems: Sequence[ProblemService], options: Options) -> Routes:
    """The endpoints of Personalizer by their rows, bound to the one problem; handlers take an event first."""
    if len(problems) != 1:
        raise ValueError("the interface of Personalizer names no problem: serve one workspace with it")
    (service,) = problems
    endpoints = personalizer.PersonalizerEndpoints(service)
    limits = {None: 0, "single": options.max_body, "batch": options.max_batch_body}
    found: Routes = {}
    for row in routes.PERSONALIZER_ENDPOINTS:
        assert row.scope is not None
        route = Route(getattr(endpoints, row.handler), service, row.scope, limits[row.limit])
        found.setdefault(row.path, {}).update(_methods(row, route))
    return found


def _key_header(options: Options) -> list[str]:
    return [personalizer.KEY_HEADER] if options.personalizer else []


def _methods(row: routes.Endpoint, route: Route) -> dict[str, Route]:
    return dict.fromkeys(("GET", "HEAD") if row.method == "GET" else (row.method,), route)


async def _repeat(seconds: float, work: Callable[[], Awaitable[object]]) -> None:
    """Run a task at an interval; log what it raises and continue."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except Exception:
            _logger.exception("a background task failed; retrying")


async def _opened(service: ProblemService) -> ProblemService:
    """A service that another one hands over to, opened; `OtherProblem` if it has no policy for its problem."""
    try:
        await service.open()
        policy = service.snapshots.current.policy
        if policy is None or policy.problem.hash != service.workspace.problem.hash:
            raise OtherProblem(service.snapshots.fault or "problem.toml has changed again; that is followed next")
    except BaseException:
        service.hand_over()
        await service.close()
        raise
    return service


def _tune_gc() -> None:
    """Freeze the startup heap and raise the GC thresholds: requests allocate almost no cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _refuse_same_names(workspaces: Sequence[Workspace]) -> None:
    named: dict[str, str] = {}
    for workspace in workspaces:
        name = workspace.problem.name
        if name in named:
            raise ValueError(f"{named[name]} and {workspace.url} both have the problem name {name!r}; rename one")
        named[name] = workspace.url


def _refuse_other_types(headers: Headers) -> None:
    """Require the JSON media type: a browser sends it across origins only if CORS allows it."""
    stated = header(headers, b"content-type") or b""
    if stated != JSON and stated.partition(b";")[0].strip().lower() != JSON:
        raise Refusal(415, "type", "the body must be JSON: send the header 'Content-Type: application/json'", CLOSE)


def _failed(error: Exception) -> Refusal:
    """Log where an unexpected error was raised, without its message, which may quote what a caller sent."""
    places = "".join(traceback.format_tb(error.__traceback__))
    _logger.error("a request failed with %s:\n%s", type(error).__name__, places)
    return Refusal(500, "failure", "internal error; the log of the service says where")
