"""A version beside its own teacher, by the values of each feature."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from potstill.service.problem_service import ProblemService
from potstill.service.wire import Version


class FidelityQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which version to measure, in how many of the latest contexts."""

    version: Version
    contexts: Annotated[int, Meta(ge=1, le=20_000)] = 2000


class GroupFidelity(Struct, frozen=True, kw_only=True):
    """Contexts with some values of a feature: mean divergence `kl` in nats, and mean total variation `tv`."""

    group: str
    contexts: int
    kl: float
    tv: float


class FeatureFidelity(Struct, frozen=True, kw_only=True):
    """By values of a feature; `spread` is the largest less the smallest total variation."""

    feature: str
    spread: float
    groups: list[GroupFidelity]


class FidelityReply(Struct, frozen=True, kw_only=True):
    """A version against its teacher, before the floor: over all contexts, and by feature, the largest spread first."""

    version: int
    contexts: int
    kl: float
    tv: float
    features: list[FeatureFidelity]


async def read_fidelity(service: ProblemService, query: FidelityQuery) -> FidelityReply:
    """Measure a version; `Refusal` if its teacher is not kept, or nothing is logged."""
    return await service.queries.ask("fidelity", FidelityReply, version=query.version, contexts=query.contexts)
