"""The endpoints that are of no problem: health, readiness, metrics, and the description of the service."""

from __future__ import annotations

from collections.abc import Sequence

from potstill.service import docs_page
from potstill.service.auth import allowed
from potstill.service.errors import Refusal, unavailable
from potstill.service.http import Headers, Reply, json
from potstill.service.metrics import CONTENT_TYPE, Metrics
from potstill.service.openapi import document
from potstill.service.options import Options
from potstill.service.problem_service import Served
from potstill.service.status import looked_up, ready


class Whole:
    """The endpoints of the service as a whole."""

    def __init__(self, problems: Sequence[Served], options: Options, metrics: Metrics | None) -> None:
        self._problems, self._options, self._metrics = problems, options, metrics
        self._names = [served.name for served in problems]

    async def health(self, _: bytes, __: Headers) -> Reply:
        """The process lives."""
        return json({"status": "alive"})

    async def ready(self, _: bytes, __: Headers) -> Reply:
        """Every problem has a policy, and its log takes events."""
        for served in self._problems:
            if not await looked_up(ready, served):
                raise unavailable("not ready", "a problem has no sound policy, or its log cannot be written")
        return json({"status": "ready"})

    async def metrics(self, _: bytes, headers: Headers) -> Reply:
        """What was counted, of the problems that the caller may see."""
        seen = allowed(self._options, self._names, headers, "read")
        if self._metrics is None:
            raise Refusal(404, "unknown", "this service counts nothing; potstill serve does")
        text = await looked_up(self._metrics.exposition, seen)
        return Reply(text, content_type=CONTENT_TYPE.encode())

    async def openapi(self, _: bytes, headers: Headers) -> Reply:
        """What can be asked, of the problems that the caller may see."""
        seen = allowed(self._options, self._names, headers, "read")
        problems = [served.workspace.problem for served in self._problems if served.name in seen]
        secured = any(not guard.open for guard in self._options.guards.values())
        return json(document(problems, secured=secured, max_batch=self._options.max_batch))

    async def docs(self, _: bytes, __: Headers) -> Reply:
        """A page that shows it."""
        return Reply(docs_page.PAGE, content_type=docs_page.CONTENT_TYPE, headers=docs_page.HEADERS)
