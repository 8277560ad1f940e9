"""The service as an ASGI application: from a request to the endpoint that answers it, and how all begins and ends."""

from __future__ import annotations

import asyncio
import gc
import logging
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from potstill.service.auth import check
from potstill.service.endpoints import Whole
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
    send_reply,
)
from potstill.service.limits import Disconnected, Load, Options
from potstill.service.metrics import Standing, Uncounted
from potstill.service.problem_service import Served
from potstill.service.routes import Route, Routes, of_problem, of_service
from potstill.service.status import log_status
from potstill.workspace import Workspace

__all__ = ["App", "Options", "create_app"]
_logger = logging.getLogger(__name__)
#: Between two looks for tokens that were made or revoked.
TOKEN_SECONDS = 1.0


def create_app(workspaces: Sequence[Workspace], options: Options | None = None) -> Any:
    """An ASGI application that serves workspaces. It opens their logs when the server starts it.

    Raises:
        ValueError: two of them have the same problem name, or a configuration does not make sense.
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
        allow_headers=["Authorization", "Content-Type", "If-None-Match"],
        expose_headers=["ETag", "Retry-After", "X-Potstill-Version"],
    )


class App:
    """The application; see `create_app`."""

    def __init__(self, workspaces: Sequence[Workspace], options: Options) -> None:
        _refuse_same_names(workspaces)
        self._options = options
        metrics = options.metrics(self._standings) if options.metrics else None
        self._counting = metrics.of("") if metrics else Uncounted()
        self._problems = [
            Served(
                workspace,
                metrics.of(workspace.problem.name) if metrics else Uncounted(),
                patience=options.patience,
                remembered=options.remembered,
            )
            for workspace in workspaces
        ]
        self._routes: Routes = of_service(Whole(self._problems, options, metrics))
        for served in self._problems:
            self._routes |= of_problem(served, options)
        self._load = Load(
            requests=options.max_in_flight, bytes=options.max_bytes_in_flight, seconds=options.read_seconds
        )
        self._background: list[asyncio.Task[None]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or begin and end with the server."""
        if scope["type"] == "http":
            await self._answer(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)

    async def open(self) -> None:
        """Open the logs, and begin to follow the registries."""
        for served in self._problems:
            await served.open()
            seconds = self._options.reload_seconds or served.workspace.config.serve.reload_seconds
            self._background.append(asyncio.create_task(_repeat(seconds, served.reload)))
        self._background.append(asyncio.create_task(_repeat(TOKEN_SECONDS, self._reload_tokens)))
        self._background.append(asyncio.create_task(self._load.watch()))

    async def close(self) -> None:
        """Commit what is pending, and close the logs."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        self._background.clear()
        for served in self._problems:
            await served.close()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        route: Route | None = None
        try:
            route = self._route(scope)
            reply = await self._handled(route, scope["headers"], receive)
        except Refusal as refusal:
            counting = route.served.counting if route and route.served else self._counting
            counting.refused(refusal.reason)
            reply = refused(refusal)
        except Disconnected:
            return
        except Exception as error:
            reply = _failed(error)
        await send_reply(send, reply)

    def _route(self, scope: Scope) -> Route:
        methods = self._routes.get(scope["path"])
        if methods is None:
            raise Refusal(404, "unknown", "there is nothing at this path; /docs shows what there is")
        route = methods.get(scope["method"])
        if route is None:
            allow = ", ".join(methods)
            raise Refusal(405, "unknown", f"this path takes {allow} only", ((b"allow", allow.encode()),))
        return route

    async def _handled(self, route: Route, headers: Headers, receive: Receive) -> Reply:
        if route.served is None:  # whoever watches the service is answered, however much there is to do
            return await route.handle(b"", headers)
        check(self._options, route.served.name, headers, route.scope)
        body = b""
        self._load.enter()
        try:
            if route.max_body:
                body = await self._body(route, headers, receive)
            return await route.handle(body, headers)
        finally:
            self._load.leave(body)

    async def _body(self, route: Route, headers: Headers, receive: Receive) -> bytes:
        _refuse_other_types(headers)
        return await self._load.read(receive, route.max_body, header(headers, b"content-length"))

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.open()
        except Exception as error:
            await self.close()
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        _settle()
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

    def _standings(self) -> Iterator[Standing]:
        for served in self._problems:
            policy = served.serving.now.policy
            version = None if policy is None else policy.version
            yield Standing(served.name, version, log_status(served).lag_seconds)


async def _repeat(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    """Do something for ever, whatever becomes of it."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await work()
        except Exception:
            _logger.exception("work in the background failed; it is tried again")


def _settle() -> None:
    """Look for garbage less often, and never among what was loaded by now: requests make little that needs it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _refuse_same_names(workspaces: Sequence[Workspace]) -> None:
    named: dict[str, str] = {}
    for workspace in workspaces:
        name = workspace.problem.name
        if name in named:
            raise ValueError(f"{named[name]} and {workspace.url} are both of problem {name!r}; rename one of them")
        named[name] = workspace.url


def _refuse_other_types(headers: Headers) -> None:
    """Only JSON that says so: a browser sends it to another origin only if that allows it."""
    stated = header(headers, b"content-type") or b""
    if stated != JSON and stated.partition(b";")[0].strip().lower() != JSON:
        raise Refusal(415, "type", "the body must be JSON: send the header 'Content-Type: application/json'", CLOSE)


def _failed(error: Exception) -> Reply:
    """Our fault. The message of an unexpected error may hold what a caller sent, so that only its place is logged."""
    places = "".join(traceback.format_tb(error.__traceback__))
    _logger.error("a request failed with %s:\n%s", type(error).__name__, places)
    return refused(Refusal(500, "failure", "the service failed to answer; its log says where"))
