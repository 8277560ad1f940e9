"""A plan from what a user states and what a workspace's log says; what is stated counts more."""

from __future__ import annotations

import msgspec

from potstill.experiments.analysis.metrics import Per
from potstill.experiments.analysis.plan import Effect, Plan, plan
from potstill.experiments.analysis.units import REWARD
from potstill.experiments.analysis.workspace import history_of
from potstill.workspace import Workspace


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a user states; None for what the log is to say. See `plan` for the rest."""

    effect: str
    mean: float | None = None
    sd: float | None = None
    explained: float | None = None
    metric: str = REWARD
    per: Per = "decision"
    power: float = 0.8
    level: float = 0.95
    share: float | None = None


def plan_for(wanted: Wanted, workspace: Workspace | None) -> Plan:
    """A plan, for a workspace or from numbers alone."""
    effect = Effect.read(wanted.effect)
    config = workspace.config.experiment if workspace else None
    history = history_of(workspace, wanted.metric, wanted.per) if workspace else None
    sd = wanted.sd if wanted.sd is not None else history.sd if history else None
    if sd is None:
        raise ValueError("name a workspace, or state --sd (and --mean for an effect in per cent)")
    if not sd > 0:
        raise ValueError(f"the standard deviation over units must be above 0, got {sd:g}: state another with --sd")
    return plan(
        effect,
        mean=wanted.mean if wanted.mean is not None else history.mean if history else None,
        sd=sd,
        level=wanted.level,
        power=wanted.power,
        share=wanted.share if wanted.share is not None else config.share if config else 0.5,
        explained=wanted.explained if wanted.explained is not None else history.explained if history else None,
        history=history,
    )
