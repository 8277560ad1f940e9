"""Endpoints that only read; `service.routes` lists them."""

from __future__ import annotations

from potstill.service.http import Headers, Reply, json, read_query
from potstill.service.problem_service import ProblemService
from potstill.service.reads import versions
from potstill.service.status import in_thread


class ReadEndpoints:
    """Endpoints of one problem that only read; each takes the query string and the headers of a request.

    Args:
        service: The problem.
    """

    def __init__(self, service: ProblemService) -> None:
        self._service = service

    async def versions(self, query: bytes, _: Headers) -> Reply:
        """The latest versions and changes."""
        return json(await in_thread(versions.read_versions, self._service, read_query(versions.VersionsQuery, query)))

    async def version(self, query: bytes, _: Headers) -> Reply:
        """One version."""
        return json(await in_thread(versions.read_version, self._service, read_query(versions.VersionQuery, query)))
