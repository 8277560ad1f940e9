"""Decisions, one by one: the latest, those of a unit, and the whole story of one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from potstill.problem import YEAR_2200
from potstill.service.problem_service import ProblemService
from potstill.service.wire import Text


class DecisionsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which decisions to list."""

    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    unit: Text | None = None
    before: Annotated[int, Meta(ge=0, lt=int(YEAR_2200))] | None = None


class DecisionQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which decision to read."""

    id: Text


class DecisionSummary(Struct, frozen=True, kw_only=True):
    """A decision in a list: `rewards` were sent for it so far, the last one is `reward`.

    `log` is true for one that is in this machine's log and not in the lake yet.
    """

    id: str
    time: datetime
    action: Any
    propensity: float
    policy: int
    unit: str | None
    mode: str | None
    arm: str | None
    rewards: int
    reward: float | None
    log: bool


class DecisionsReply(Struct, frozen=True, kw_only=True):
    """Decisions, newest first; ask with `before` as `older` says for those before them, if there are any."""

    decisions: list[DecisionSummary]
    older: int | None


class LoggedDecisionReply(Struct, frozen=True, kw_only=True):
    """A decision as it was logged.

    In mode apprentice, `would` is what the policy would have drawn, and `own_propensity` that of the caller's own
    choice, if they are logged.
    """

    id: str
    time: datetime
    context: dict[str, Any]
    action: Any
    propensity: float
    policy: int
    eligible: Any
    floor: float | None
    unit: str | None
    mode: str | None
    arm: str | None
    log: bool
    would: Any = None
    own_propensity: float | None = None


class LoggedRewardReply(Struct, frozen=True, kw_only=True):
    """A reward as it was logged: `delay` are seconds after the decision, `counts` says whether it is in the window."""

    time: datetime
    reward: float
    key: str | None
    metrics: dict[str, float]
    delay: float | None
    counts: str
    log: bool


class ObservationReply(Struct, frozen=True, kw_only=True):
    """What the join made of a decision: its final reward, by which cut, when, and how several rewards were combined."""

    reward: float
    rewarded: bool | None
    cut: int
    made: int | None
    aggregate: str | None


class DecisionReply(Struct, frozen=True, kw_only=True):
    """The whole story of one decision.

    `decisions` are all that were logged under the id, the first counts. `probabilities` are those that the policy gave
    to `labels` in the context, `draws` the numbers that chose among them. `final` is when the decision is joined, in
    microseconds since 1970; null if it is. `audit` is the verdict on propensity and draw.
    """

    decisions: list[LoggedDecisionReply]
    labels: list[str]
    probabilities: list[float]
    draws: list[float]
    rewards: list[LoggedRewardReply]
    observation: ObservationReply | None
    final: int | None
    audit: str


async def read_decisions(service: ProblemService, query: DecisionsQuery) -> DecisionsReply:
    """The latest decisions."""
    asked = {"limit": query.limit, "unit": query.unit, "before": query.before}
    return await service.queries.ask("decisions", DecisionsReply, **asked)


async def read_decision(service: ProblemService, query: DecisionQuery) -> DecisionReply:
    """One decision; `Refusal` if there is none."""
    return await service.queries.ask("decision", DecisionReply, id=query.id)
