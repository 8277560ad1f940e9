"""How a workspace stands: what serves, how faithful it is, what waits, and what an update would do now."""

from __future__ import annotations

import msgspec

from potstill.events import now as clock
from potstill.events.wal import Pending, Spool
from potstill.pipeline.update import UpdateReport, foresee
from potstill.workspace import ExperimentStatus, Workspace, experiment_status


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """How a workspace stands.

    Attributes:
        workspace: where it is.
        problem: its name.
        problem_hash: of its features and actions.
        serving: the version that serves.
        published: whether it was published; the uniform policy of a new workspace is not, until it is started.
        since: when it began to serve, microseconds since 1970; None if it was not published.
        learnt: observations that it has learnt from in all.
        fidelity: how well it imitates its teacher, as measured when it was made; None for a uniform one.
        latest: the highest version number, served or not.
        log: events that are not in the lake yet, on this machine.
        experiment: that potstill.toml has, and whether it would be followed; None if there is none.
        next: what an update would do now.
    """

    workspace: str
    problem: str
    problem_hash: str
    serving: int
    published: bool
    since: int | None
    learnt: int
    fidelity: dict[str, float] | None
    latest: int | None
    log: Pending
    experiment: ExperimentStatus | None
    next: UpdateReport


def status(workspace: Workspace, now: int | None = None) -> Status:
    """How a workspace stands; nothing is changed."""
    policy, head = workspace.serving(), workspace.registry.head()
    published = head is not None and head.serving == policy.version
    served = [entry.time for entry in workspace.registry.entries() if entry.serving == policy.version]
    return Status(
        workspace=workspace.url,
        problem=workspace.problem.name,
        problem_hash=workspace.problem.hash,
        serving=policy.version,
        published=published,
        since=served[0] if published and served else None,
        learnt=policy.metadata.lineage.observations,
        fidelity=policy.metadata.fidelity,
        latest=head.latest if head else None,
        log=Spool(workspace.spool).pending(),
        experiment=experiment_status(workspace, clock() if now is None else now),
        next=foresee(workspace, now),
    )
