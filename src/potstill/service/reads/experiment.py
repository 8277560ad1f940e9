"""The report of the running experiment."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from potstill.service.problem_service import ProblemService
from potstill.service.wire import Text


class ExperimentQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """By which feature to show effects."""

    by: Text | None = None


class TableReply(Struct, frozen=True, kw_only=True):
    """A table in words; empty if there is nothing to show."""

    header: list[str]
    rows: list[list[str]]


class ExperimentReply(Struct, frozen=True, kw_only=True):
    """The report that `potstill experiment` makes: `report` is its JSON, the rest its text.

    `kind` is that of the verdict: stop, worse, better or unknown, among others. `broken` says that the split of units
    does not fit the configured share, so that there are no effects to report.
    """

    kind: str
    sentence: str
    often: str
    warnings: list[str]
    split: str
    broken: bool
    set_up: dict[str, str]
    effects: TableReply
    segments: TableReply
    report: dict[str, Any]


async def read_experiment(service: ProblemService, query: ExperimentQuery) -> ExperimentReply:
    """The report; `Refusal` if there is no experiment."""
    return await service.queries.ask("experiment", ExperimentReply, by=query.by)
