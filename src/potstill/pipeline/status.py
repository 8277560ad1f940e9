"""Status of a workspace: the serving version, the events in the log, and whether an update is due.

It runs on serving hosts, so it imports nothing from the learning half.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from potstill.events import RewardTotals, Watermark, read_totals
from potstill.events import now as clock
from potstill.events.join import JoinReport, last_cut, preview
from potstill.events.wal import Pending, Spool
from potstill.pipeline.backlog import Backlog, backlog
from potstill.pipeline.design_progress import DesignProgress, read_design_progress
from potstill.pipeline.origin import Origin, is_stand_in, learnt_by, left_out
from potstill.policy import Policy
from potstill.registry import Entry, Hold, NoState
from potstill.summaries import ApprenticeReport, UpdateRun, mask_notices, read_report, read_updates
from potstill.workspace import (
    ExperimentStatus,
    Workspace,
    check_config,
    experiment_status,
    in_words,
    notices,
    same_code,
    states_prior,
)

_PRIOR = "nothing yet: the first policy imitates the teacher's prior; potstill update or serve distils it"


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The expected outcome of an update now.

    Attributes:
        due: Whether there are enough new observations for an update to distil a policy, and updates are not paused.
        why: Reason for `due`, in words.
        observations: Number of new observations, without events that are still in the log.
        unfit: Number of observations that would be left out because the problem has changed.
        joined: Expected result of the join.
        held_by: Log that would hold the cut back; None if none would.
        waits: Why events would wait, in words.
    """

    due: bool
    why: str
    observations: int
    unfit: int = 0
    joined: JoinReport
    held_by: Watermark | None = None
    waits: list[str] = []


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Status of a workspace.

    Attributes:
        workspace: URL of the workspace.
        problem: Name of the problem.
        problem_hash: Hash of its features and actions.
        serving: The serving version.
        published: Whether it is published; the uniform policy of a new workspace is not, until a service starts.
        decides: What it decides by, in words.
        since: Start of serving in microseconds since 1970; None if it is not published.
        learnt: Number of observations that it has learnt from.
        fidelity: Fidelity to its teacher, measured at its update; None for a uniform policy.
        selection: Weights and errors of the candidates of its teacher, by name; None if the teacher has none.
        latest: Highest version number, serving or not.
        pinned: Who pinned the serving version; None if it is not pinned.
        paused: Who paused updates; None if they are not paused.
        rewards: Rewards of all joins so far: used, late and orphaned.
        log: Events of this machine that are not in the lake yet.
        logs: Watermarks of all machines' logs.
        experiment: Status of the experiment in potstill.toml; None without one.
        design: Progress of the initial design; None without one.
        apprentice: How close the policy is to the callers' own choices; None without decisions of mode apprentice.
        update: The last update; None if there was none.
        next: Expected outcome of an update now.
        notices: What an operator should know: that the problem or the configuration has changed, and what to do.
    """

    workspace: str
    problem: str
    problem_hash: str
    serving: int
    published: bool
    decides: str
    since: int | None
    learnt: int
    fidelity: dict[str, Any] | None
    latest: int | None
    pinned: Hold | None
    paused: Hold | None
    rewards: RewardTotals
    log: Pending
    logs: list[Watermark]
    experiment: ExperimentStatus | None
    design: DesignProgress | None
    apprentice: ApprenticeReport | None
    update: UpdateRun | None
    selection: dict[str, dict[str, float]] | None = None
    next: Forecast
    notices: list[str]


def read_status(workspace: Workspace, now: int | None = None) -> Status:
    """Status of a workspace; read-only."""
    check_config(workspace)
    head, following = workspace.registry.head(), workspace.serving()
    published = head is not None and head.serving is not None
    policy = workspace.before() if published else following
    served = [entry.time for entry in workspace.registry.entries() if entry.serving == policy.version]
    moment = clock() if now is None else now
    expected = forecast(workspace, following, moment)
    return Status(
        workspace=workspace.url,
        problem=workspace.problem.name,
        problem_hash=workspace.problem.hash,
        serving=policy.version,
        published=published,
        decides=in_words(policy) if published or not states_prior(workspace.config.teacher) else _PRIOR,
        since=served[0] if published and served else None,
        learnt=policy.metadata.lineage.observations,
        fidelity=policy.metadata.fidelity,
        selection=policy.metadata.lineage.selection,
        latest=head.latest if head else None,
        pinned=head.pinned if head else None,
        paused=head.paused if head else None,
        rewards=read_totals(workspace.cuts),
        log=Spool(workspace.spool).pending(),
        logs=workspace.watermarks.all(),
        experiment=experiment_status(workspace, moment),
        design=read_design_progress(workspace),
        apprentice=_apprentice(workspace),
        update=read_updates(workspace.storage).last,
        next=expected,
        notices=[*notices(workspace, following), *mask_notices(workspace.storage, policy), *expected.waits],
    )


def _apprentice(workspace: Workspace) -> ApprenticeReport | None:
    found = read_report(workspace.storage, ApprenticeReport)
    return found if found is not None and found.rows else None


def forecast(workspace: Workspace, serving: Policy, now: int) -> Forecast:
    """What an update would find now, in microseconds since 1970."""
    rules, head, horizon = workspace.config.join, workspace.registry.head(), workspace.horizon(now)
    cut = last_cut(workspace.lake)  # before the preview: an update may join meanwhile, and would be counted twice
    joined = preview(
        workspace.lake,
        workspace.cuts,
        workspace.problem,
        aggregate=rules.aggregate,
        settle=rules.settle_seconds,
        now=horizon.time,
    )
    after, without = _learnt_up_to(workspace, serving), left_out(workspace, serving)
    found = backlog(workspace, serving, after, cut, without, _states(workspace))
    found = found._replace(observations=found.observations + joined.decisions, unseen=found.unseen + joined.decisions)
    if head is not None and head.paused is not None:
        due, why = False, paused_text(head.paused)
    else:
        stand_in = is_stand_in(workspace, serving, head.latest if head else None)
        due = stand_in or found.unseen >= observations_needed(workspace)
        pending = Spool(workspace.spool).pending().bytes
        why = f"an update would learn from {found.observations:,} new observations"
        why += f", and replace version {serving.version}, which is only adapted" if stand_in else ""
        why = why + _staging(head) if due else too_few_text(workspace, found)
        why += f"; an update first moves {pending:,} bytes of the log into the lake" if pending else ""
    return Forecast(
        due=due,
        why=why,
        observations=found.observations,
        unfit=found.unfit,
        joined=joined,
        held_by=horizon.held_by,
        waits=[*horizon.words(now), *joined.words],
    )


def observations_needed(workspace: Workspace) -> int:
    """The least number of new observations for an update."""
    return max(workspace.config.update.min_observations, 1)


def too_few_text(workspace: Workspace, found: Backlog) -> str:
    """Why an update waits."""
    needed = observations_needed(workspace)
    return f"{found.unseen:,} new observations; update.min_observations = {needed:,}{found.known}"


def paused_text(paused: Hold) -> str:
    """Why no update is made."""
    return f"updates are paused {paused.in_words}; potstill resume ends the pause"


def _staging(head: Entry | None) -> str:
    if head is None or head.pinned is None:
        return ""
    return f", and stage its version: version {head.serving} is pinned {head.pinned.in_words}"


def _states(workspace: Workspace) -> Callable[[Mapping[str, Any]], bool]:
    """Whether a teacher has the options that `potstill.toml` states; options that it leaves out are not compared."""
    stated = workspace.config.teacher
    options = {name: value for name, value in stated.items() if name not in ("type", "model")}
    return lambda teacher: (
        same_code(workspace.storage, stated, teacher)
        and all(teacher.get(option) == value for option, value in options.items())
    )


def _learnt_up_to(workspace: Workspace, serving: Policy) -> int:
    """The cut that an update would learn after.

    It is taken from the registry and the teacher's type. Whether the state fits in every option is known only to an
    update.
    """
    learnt = learnt_by(workspace, serving)
    if learnt.why_not is not None:
        return 0
    return Origin.of(learnt.policy).cut if _can_resume(workspace, learnt.policy) else 0


def _can_resume(workspace: Workspace, serving: Policy) -> bool:
    teacher = serving.metadata.lineage.teacher
    if teacher is None or not same_code(workspace.storage, workspace.config.teacher, teacher):
        return False
    try:
        workspace.registry.teacher(serving.version)
    except NoState:
        return False
    return True
