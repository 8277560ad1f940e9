"""Addresses of the pages: the list of problems, the views of each, and their files."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial

from potstill.errors import PotstillError
from potstill.service.auth import allowed, check
from potstill.service.dashboard.assets import Asset, assets
from potstill.service.dashboard.html import Html, tag
from potstill.service.dashboard.index import index
from potstill.service.dashboard.page import HEADERS, locked, whole
from potstill.service.dashboard.parts import notice, url, waiting
from potstill.service.dashboard.view import Call, View
from potstill.service.dashboard.views import VIEWS
from potstill.service.http import HTML, Headers, Refusal, Reply, header
from potstill.service.limits import Options
from potstill.service.problem_service import ProblemService

#: Answers a request, given its query string and its headers.
Handler = Callable[[bytes, Headers], Awaitable[Reply]]
_FOR_EVER = (b"cache-control", b"public, max-age=31536000, immutable")


def pages(problems: Sequence[ProblemService], options: Options) -> Iterator[tuple[str, Handler]]:
    """All addresses, and what answers a GET of each."""
    yield "/", partial(_index, problems, options)
    for service in problems:
        yield f"/p/{service.name}", partial(_page, service, VIEWS[0], options)
        for view in VIEWS:
            yield f"/p/{service.name}/{view.name}", partial(_page, service, view, options)
    for path, asset in assets().items():
        yield path, partial(_asset, asset)


async def _index(problems: Sequence[ProblemService], options: Options, _: bytes, headers: Headers) -> Reply:
    """The list of problems that the caller may see."""
    seen = [service for service in problems if allowed(options.guards, service.name, headers, "read")]
    inside = await index(seen, hidden=len(problems) - len(seen))
    if _is_fragment(headers):
        return _html(inside)
    return _html(whole("Potstill", inside))


async def _page(service: ProblemService, view: View, options: Options, query: bytes, headers: Headers) -> Reply:
    """A view within its page; alone, if htmx asks for it."""
    status, is_locked = 200, False
    try:
        check(options.guards, service.name, headers, "read")
        call = Call(service, query, allowed(options.guards, service.name, headers, "admin"))
        wait = view.deferred and not _is_fragment(headers)
        inside = (
            waiting(f"{url(service.name, view.name)}?{query.decode('latin-1')}") if wait else await view.render(call)
        )
    except Refusal as refusal:
        status, is_locked = refusal.status, refusal.status in (401, 403)
        inside = locked(refusal.message) if is_locked else _refused(view, refusal.message)
    except (PotstillError, OSError) as error:
        status, inside = 503, _refused(view, str(error))
    if _is_fragment(headers):
        return _html(inside, status)
    title = f"{view.title} – {service.name}"
    # A page that waits for a token is no failure of this request.
    status = 200 if is_locked else status
    return _html(whole(title, inside, problem=service.name, views=VIEWS, current=view, locked=is_locked), status)


async def _asset(asset: Asset, _: bytes, headers: Headers) -> Reply:
    always = (_FOR_EVER, (b"vary", b"accept-encoding"), (b"x-content-type-options", b"nosniff"))
    known = header(headers, b"if-none-match")
    if known in (asset.etag, asset.gzipped_etag):
        return Reply(b"", 304, asset.content_type, ((b"etag", known), *always))
    if _takes_gzip(headers):
        about = ((b"etag", asset.gzipped_etag), (b"content-encoding", b"gzip"))
        return Reply(asset.gzipped, 200, asset.content_type, (*about, *always))
    return Reply(asset.data, 200, asset.content_type, ((b"etag", asset.etag), *always))


def _takes_gzip(headers: Headers) -> bool:
    """Whether the client names gzip and gives it no weight; every browser does."""
    named = (header(headers, b"accept-encoding") or b"").lower().split(b",")
    return b"gzip" in (part.strip() for part in named)


def _is_fragment(headers: Headers) -> bool:
    return header(headers, b"hx-request") == b"true"


def _refused(view: View, message: str) -> Html:
    return tag("section", tag("h1", view.title), notice(message, "bad"))


def _html(inside: Html, status: int = 200) -> Reply:
    return Reply(inside.encode(), status, HTML, HEADERS)
