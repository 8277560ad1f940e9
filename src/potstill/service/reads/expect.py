"""Expected rewards in some contexts, as the teacher of the serving version predicts them."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, structs

from potstill.service.problem_service import ProblemService
from potstill.service.wire import ExpectRequest


class ExpectReply(Struct, frozen=True, kw_only=True):
    """Expected rewards by context and then by `labels`, with the ends of their intervals at `level`.

    For a number, `labels` are some of its values. Lists are empty where the teacher does not say it, and `why` then
    tells the reason.
    """

    version: int | None
    labels: list[str]
    mean: list[list[float]]
    low: list[list[float]]
    high: list[list[float]]
    level: float
    why: str | None


async def read_expectation(service: ProblemService, request: ExpectRequest) -> ExpectReply:
    """Expected rewards; `Refusal` if the workspace cannot be read."""
    features = service.requests.features
    contexts = [dict(zip(features, structs.astuple(context), strict=True)) for context in request.contexts]
    return await service.queries.ask("expect", ExpectReply, contexts=_plain(contexts))


def _plain(contexts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Contexts without the values that were left out."""
    return [{name: value for name, value in context.items() if value is not None} for context in contexts]
