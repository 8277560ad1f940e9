"""What the summaries of a workspace say, for the JSON endpoints, the pages and the metrics. All of it reads files."""

from __future__ import annotations

from typing import Annotated

import msgspec

from potstill.events import now, read_totals
from potstill.service.problem_service import ProblemService
from potstill.service.status import file_notices, log_notices, log_status
from potstill.spaces import NamedActions
from potstill.summaries import (
    HOURS,
    ApprenticeReport,
    FeatureReport,
    Health,
    HealthReport,
    Inputs,
    Overview,
    Service,
    health,
    mask_notices,
    overview,
    read_report,
    read_summary,
    read_updates,
)
from potstill.workspace import fallback_of, in_words

#: The longest stretch that may be asked for, in hours: ten years.
MOST_HOURS = 87_600


class RangeQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much of the series to show.

    Attributes:
        hours: The last hours; 0 for everything.
    """

    hours: Annotated[float, msgspec.Meta(ge=0, le=MOST_HOURS)] = HOURS


def overview_of(service: ProblemService, asked: RangeQuery) -> Overview:
    """The overview of a problem."""
    return overview(_inputs(service), _service(service), now(), asked.hours or None)


def health_of(service: ProblemService, asked: RangeQuery) -> Health:
    """Whether the log is what the policies say, and whether anything has changed."""
    stored = service.workspace.storage
    return health(_inputs(service), read_report(stored, HealthReport), now(), asked.hours or None)


def apprentice_of(service: ProblemService) -> ApprenticeReport:
    """How close the policy is to the caller's own choices, as of the last update."""
    found = read_report(service.workspace.storage, ApprenticeReport)
    return found or ApprenticeReport(made=now(), words="No update has compared decisions of mode apprentice yet.")


def features_of(service: ProblemService) -> FeatureReport:
    """Which features matter, as of the last update."""
    policy = service.snapshots.current.policy
    found = read_report(service.workspace.storage, FeatureReport)
    return found or FeatureReport(made=now(), version=0 if policy is None else policy.version)


def _inputs(service: ProblemService) -> Inputs:
    workspace = service.workspace
    return Inputs(
        decisions=read_summary(workspace.storage, "decisions"),
        rewards=read_summary(workspace.storage, "rewards"),
        observations=read_summary(workspace.storage, "observations"),
        totals=read_totals(workspace.cuts),
        updates=read_updates(workspace.storage),
    )


def _service(service: ProblemService) -> Service:
    snapshot, workspace = service.snapshots.current, service.workspace
    policy, fault = snapshot.policy, service.log_fault
    return Service(
        problem=service.name,
        mode=snapshot.mode,
        version=None if policy is None else policy.version,
        decides=None if policy is None else in_words(policy),
        since=round(snapshot.since.timestamp() * 1e6),
        fallback=_fallback(service),
        experiment=service.experiments.state(snapshot.mode),
        log_fault=None if fault is None else str(fault),
        mode_fault=snapshot.mode_fault,
        lag_seconds=log_status(service).lag_seconds,
        pinned=None if snapshot.pinned is None else snapshot.pinned.in_words,
        paused=None if snapshot.paused is None else snapshot.paused.in_words,
        window_seconds=workspace.problem.reward.window_seconds,
        notices=[
            *(notice for notice in file_notices(service) if notice is not None),
            *log_notices(service),
            *([] if policy is None else mask_notices(workspace.storage, policy)),
        ],
    )


def _fallback(service: ProblemService) -> str | None:
    """The fallback action as summaries label it; None if there is none, or it is a number."""
    workspace = service.workspace
    action = fallback_of(workspace)
    return action if isinstance(workspace.problem.actions, NamedActions) else None
