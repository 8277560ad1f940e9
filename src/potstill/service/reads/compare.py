"""Two versions in the same contexts: how often and where their actions differ."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from potstill.service.problem_service import ProblemService
from potstill.service.wire import Version


class CompareQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which versions to compare, in how many of the latest contexts."""

    first: Version
    second: Version
    contexts: Annotated[int, Meta(ge=1, le=20_000)] = 2000


class GroupDifference(Struct, frozen=True, kw_only=True):
    """Contexts with some values of a feature.

    `differ` is the share of decisions that differ there; the action `more` gains the probability `more_by`, and `less`
    loses `less_by`, on the average.
    """

    group: str
    contexts: int
    differ: float
    more: str
    more_by: float
    less: str
    less_by: float


class FeatureDifference(Struct, frozen=True, kw_only=True):
    """By values of a feature; `spread` says how much the change of the actions depends on it."""

    feature: str
    spread: float
    groups: list[GroupDifference]


class CompareReply(Struct, frozen=True, kw_only=True):
    """Two versions: shares of actions `before` and `after`, and the share of decisions that `differ`.

    `differ_p95` is that share in the context at the 95th percentile. Features are sorted by how much the change depends
    on them.
    """

    first: int
    second: int
    contexts: int
    differ: float
    differ_p95: float
    labels: list[str]
    before: list[float]
    after: list[float]
    features: list[FeatureDifference]


async def read_comparison(service: ProblemService, query: CompareQuery) -> CompareReply:
    """Compare two versions; `Refusal` if one is not there, or nothing is logged."""
    asked = {"first": query.first, "second": query.second, "contexts": query.contexts}
    return await service.queries.ask("compare", CompareReply, **asked)
