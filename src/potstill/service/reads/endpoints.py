"""Endpoints that only read; `service.routes` lists them."""

from __future__ import annotations

from potstill.service.http import Headers, Reply, json, read_query
from potstill.service.problem_service import ProblemService
from potstill.service.read_body import read_body
from potstill.service.reads import (
    actions,
    compare,
    decisions,
    evaluation,
    expect,
    experiment,
    fidelity,
    insights,
    versions,
)
from potstill.service.status import in_thread


class ReadEndpoints:
    """Endpoints of one problem that only read; each takes the query string and the headers of a request.

    Args:
        service: The problem.
    """

    def __init__(self, service: ProblemService) -> None:
        self._service = service

    async def actions(self, _: bytes, __: Headers) -> Reply:
        """The actions, and how each is chosen."""
        return json(await in_thread(actions.read_actions, self._service))

    async def versions(self, query: bytes, _: Headers) -> Reply:
        """The latest versions and changes."""
        return json(await in_thread(versions.read_versions, self._service, read_query(versions.VersionsQuery, query)))

    async def version(self, query: bytes, _: Headers) -> Reply:
        """One version."""
        return json(await in_thread(versions.read_version, self._service, read_query(versions.VersionQuery, query)))

    async def compare(self, query: bytes, _: Headers) -> Reply:
        """Two versions."""
        return json(await compare.read_comparison(self._service, read_query(compare.CompareQuery, query)))

    async def fidelity(self, query: bytes, _: Headers) -> Reply:
        """A version and its teacher."""
        return json(await fidelity.read_fidelity(self._service, read_query(fidelity.FidelityQuery, query)))

    async def decisions(self, query: bytes, _: Headers) -> Reply:
        """The latest decisions."""
        return json(await decisions.read_decisions(self._service, read_query(decisions.DecisionsQuery, query)))

    async def decision(self, query: bytes, _: Headers) -> Reply:
        """One decision."""
        return json(await decisions.read_decision(self._service, read_query(decisions.DecisionQuery, query)))

    async def evaluation(self, _: bytes, __: Headers) -> Reply:
        """The last evaluation."""
        return json(await in_thread(evaluation.read_evaluation, self._service))

    async def experiment(self, query: bytes, _: Headers) -> Reply:
        """The report of the experiment."""
        return json(await experiment.read_experiment(self._service, read_query(experiment.ExperimentQuery, query)))

    async def expect(self, body: bytes, _: Headers) -> Reply:
        """Expected rewards."""
        request = read_body(self._service.requests.read_expect, body, self._service.name)
        return json(await expect.read_expectation(self._service, request))

    async def overview(self, query: bytes, _: Headers) -> Reply:
        """What serves, what arrives and what is earned, over time."""
        return json(await in_thread(insights.overview_of, self._service, read_query(insights.RangeQuery, query)))

    async def apprentice(self, _: bytes, __: Headers) -> Reply:
        """How close the policy is to the caller's own choices."""
        return json(await in_thread(insights.apprentice_of, self._service))

    async def features(self, _: bytes, __: Headers) -> Reply:
        """Which features matter, and what is wrong with them."""
        return json(await in_thread(insights.features_of, self._service))

    async def log_health(self, query: bytes, _: Headers) -> Reply:
        """Whether the log is what the policies say."""
        return json(await in_thread(insights.health_of, self._service, read_query(insights.RangeQuery, query)))
