"""One update of a workspace: flush → join → learn → label → imitate → gates → publish.

Each step is durable before the next one begins, and determines by itself what is left to do. An update that was killed
at any point is therefore completed by the next one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import msgspec

from potstill.distill import Report
from potstill.errors import PotstillError
from potstill.events import Watermark
from potstill.events import now as clock
from potstill.events.join import JoinReport, add_join, join, last_cut
from potstill.events.lake import FlushReport, ObservationChunk, observation_chunks
from potstill.files import hold, make_folder
from potstill.pipeline.backlog import backlog
from potstill.pipeline.contexts import extra_contexts
from potstill.pipeline.engines import Engine, LocalEngine
from potstill.pipeline.first_policy import publish_first
from potstill.pipeline.gates import Comparison, compare, objections
from potstill.pipeline.labels import FOLDER, LabelStore, forget_labels
from potstill.pipeline.origin import Origin, is_stand_in
from potstill.pipeline.record import lacks_reports, recorded, summarise, write_reports
from potstill.pipeline.resume import Start, configured, same_teacher, start
from potstill.pipeline.status import forecast, observations_needed, paused_text, too_few_text
from potstill.policy import Policy
from potstill.registry import Entry, Hold, OtherProblem
from potstill.storage import child
from potstill.workspace import Workspace, check_config, notices

#: Called with a step, the amount done and the total, at the start of the step and as it progresses.
OnStep = Callable[[str, int, int], None]
STEPS = ("flush", "join", "learn", "label", "imitate", "check", "publish", "report", "done")
Outcome = Literal["published", "staged", "refused", "waiting", "paused", "due"]


class Busy(PotstillError, BlockingIOError):
    """Another update of this workspace is running."""


@contextmanager
def only_updater(workspace: Workspace, *, wait: bool) -> Iterator[None]:
    """Hold the workspace's update lock, or raise `Busy` if it is held and `wait` is false. Released at process exit."""
    make_folder(workspace.spool)
    held = hold(workspace.spool / "update.lock", wait=wait)
    if held is None:
        raise Busy(f"another update of {workspace.url} is running; try again later, or wait for it with --wait")
    try:
        yield
    finally:
        os.close(held)


class UpdateReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of an update, or of its preview.

    Attributes:
        outcome: ``waiting`` for more observations; ``published`` and serving; ``staged`` on request or because the
            serving version is pinned; ``refused`` by the gates and kept; ``paused`` by somebody; or, of a preview,
            ``due``.
        why: The outcome in words.
        version: New version, if any.
        serving: Version that serves now.
        observations: Number of observations since the serving version.
        unfit: Number of observations that are left out because they do not fit the problem, which has changed.
        cut: Cut up to which the observations go.
        why_anew: Why the teacher learnt from all observations again; None if it was resumed.
        reasons: Objections of the gates.
        flushed: Result of the flush from the log to the lake.
        joined: Result of the join of decisions and rewards; None if updates are paused.
        still: Report of learning and distillation.
        contexts_unfit: Number of excluded rows of the table of extra contexts that do not fit the problem.
        compared: Off-policy comparison of the new policy with the serving one; None if the log does not support one.
        held_by: Log that holds the cut back: its events since its watermark are not all in the lake. None if none does.
        notices: What an operator should know, and what to do: that the problem or the configuration has changed, or
            why events wait.
        seconds: Duration of each step.
    """

    outcome: Outcome
    why: str
    version: int | None = None
    serving: int
    observations: int
    unfit: int = 0
    cut: int
    why_anew: str | None = None
    reasons: list[str] = []
    flushed: FlushReport | None = None
    joined: JoinReport | None = None
    still: Report | None = None
    contexts_unfit: int = 0
    compared: Comparison | None = None
    held_by: Watermark | None = None
    notices: list[str] = []
    seconds: dict[str, float] = {}


def run_update(
    workspace: Workspace,
    *,
    stage: bool = False,
    force: bool = False,
    wait: bool = False,
    trust_clock: bool = False,
    now: int | None = None,
    on_step: OnStep | None = None,
    engine: Engine | None = None,
    every: float | None = None,
    note: str = "",
    by: str = "",
) -> UpdateReport:
    """Learn from new observations, distil a policy, and publish it.

    The run and its outcome are recorded in the workspace.

    Args:
        workspace: The workspace.
        stage: Publish the new version without serving it.
        force: Update even with few or no new observations. A pin and a pause hold all the same.
        wait: Wait for a running update to finish instead of raising `Busy`.
        trust_clock: Accept this machine's clock although it was set since its log was last written.
        now: Time in microseconds since 1970; a decision is final when its reward window has closed by then.
        on_step: Called with the step, the amount done and the total (0: unknown).
        engine: Engine for slices of the join, parts of observations and shards of contexts. Default: this process.
        every: Seconds between two updates, for the record; None if this is a single one.
        note: Why it is made, kept in the journal with the version.
        by: Who asks for it; empty if nobody did.

    Raises:
        ImplausibleClock: A clock is wrong: that of this machine, or of a log. Nothing was flushed or joined.
    """
    with only_updater(workspace, wait=wait), recorded(workspace.storage, every) as record:
        return record(_update(workspace, stage, force, trust_clock, now, _Steps(on_step), engine, (note, by)))


def _update(
    workspace: Workspace,
    stage: bool,
    force: bool,
    trust_clock: bool,
    now: int | None,
    steps: _Steps,
    engine: Engine | None,
    author: tuple[str, str],
) -> UpdateReport:
    check_config(workspace)
    configured(workspace)
    if (paused := _paused(workspace)) is not None:
        return paused
    if trust_clock:
        workspace.log_watermark.trust_clock()
    workspace.check_clocks()
    serving, head = _start(workspace), workspace.registry.head()
    resumed = start(workspace, serving)
    steps.begin("flush")
    flushed = workspace.flusher().flush(now=now)
    moment = clock() if now is None else now
    horizon = workspace.horizon(moment)  # before the join reads the versions of the tables
    steps.begin("join")
    joined = join(
        workspace.lake,
        workspace.cuts,
        workspace.problem,
        aggregate=workspace.config.join.aggregate,
        settle=workspace.config.join.settle_seconds,
        now=horizon.time,
        on_progress=steps.progress,
        each=engine.map if engine else None,
    )
    add_join(workspace.lake, workspace.cuts, joined)
    cut, waits = last_cut(workspace.lake), [*horizon.words(moment), *joined.words, *summarise(workspace, moment)]
    found = backlog(workspace, serving, resumed.after, cut, resumed.without, same_teacher(workspace))
    so_far = UpdateReport(
        outcome="waiting",
        why=too_few_text(workspace, found),
        serving=_serving(head, serving),
        observations=found.observations,
        unfit=found.unfit,
        held_by=horizon.held_by,
        notices=[*notices(workspace, serving), *waits],
        cut=cut,
        why_anew=resumed.why_anew,
        flushed=flushed,
        joined=joined,
    )
    stand_in = is_stand_in(workspace, serving, head.latest if head else None)
    if not (force or stand_in) and found.unseen < observations_needed(workspace):
        waits = write_reports(workspace, serving, moment) if joined.cut is not None or lacks_reports(workspace) else []
        steps.begin("done")
        return msgspec.structs.replace(so_far, notices=[*so_far.notices, *waits], seconds=steps.seconds)
    expected = head.number if head else 0
    return _distil(workspace, resumed, expected, so_far, waits, stage, steps, engine or LocalEngine(), author)


def preview_update(workspace: Workspace, now: int | None = None) -> UpdateReport:
    """The expected result of an update, without side effects. Events that are still in the log are not counted."""
    check_config(workspace)
    if (paused := _paused(workspace)) is not None:
        return paused
    serving, head = workspace.serving(), workspace.registry.head()
    resumed = start(workspace, serving)
    expected = forecast(workspace, serving, clock() if now is None else now)
    return UpdateReport(
        outcome="due" if expected.due else "waiting",
        why=expected.why,
        serving=_serving(head, serving),
        observations=expected.observations,
        unfit=expected.unfit,
        held_by=expected.held_by,
        notices=[*notices(workspace, serving), *expected.waits],
        cut=last_cut(workspace.lake),
        why_anew=resumed.why_anew,
        joined=expected.joined,
    )


def _distil(
    workspace: Workspace,
    resumed: Start,
    expected: int,
    so_far: UpdateReport,
    waits: list[str],
    stage: bool,
    steps: _Steps,
    engine: Engine,
    author: tuple[str, str],
) -> UpdateReport:
    registry, still, serving = workspace.registry, resumed.still, resumed.still.policy
    version = registry.next_version()
    further = extra_contexts(workspace, engine, LabelStore(child(workspace.url, FOLDER), version))

    def origin() -> dict[str, Any]:
        contexts = further.lineage_entry if further else None
        base, after, without = resumed.base, resumed.after, resumed.without
        found = Origin(base=base, after=after, cut=so_far.cut, contexts=contexts, without=without)
        return dict(msgspec.to_builtins(found))

    def observed(after: int, to: int) -> Iterator[ObservationChunk]:
        return observation_chunks(workspace.lake, workspace.problem, after, to, without=resumed.without)

    report = still.update(
        observed(resumed.after, so_far.cut),
        earlier=observed(0, resumed.after),
        contexts=further.contexts if further else None,
        version=version,
        origin=origin,
        on_stage=steps.begin,
        on_progress=lambda done, of: steps.progress(done, of or so_far.observations),
        each=engine.map,
    )
    so_far = msgspec.structs.replace(so_far, contexts_unfit=further.unfit if further else 0)
    steps.begin("check")
    compared = compare(workspace, still.policy, serving, resumed.after, so_far.cut)
    reasons = objections(still.policy, report, workspace.config.update, compared)
    made = msgspec.structs.replace(so_far, version=version, reasons=reasons, still=report, compared=compared)
    steps.begin("publish")
    entry = registry.publish(
        still.policy,
        teacher=still.memory(),
        report=msgspec.json.encode(made),
        reasons=tuple(reasons),
        serve=not stage,
        expected=expected,
        note=author[0],
        by=author[1],
    )
    pinned = None if stage else entry.pinned
    registry.forget_states(workspace.config.update.states_kept)
    registry.sweep()
    workspace.cuts.sweep()
    forget_labels(workspace.storage, version - workspace.config.update.labels_kept)
    steps.begin("report")
    lacking = write_reports(workspace, still.policy, clock())
    steps.begin("done")
    outcome: Outcome = "refused" if reasons else "staged" if stage or pinned else "published"
    return msgspec.structs.replace(
        made,
        outcome=outcome,
        why=_outcome_text(outcome, version, so_far.serving, pinned),
        serving=so_far.serving if entry.serving is None else entry.serving,
        notices=[*(waits if outcome == "published" else so_far.notices), *lacking],
        seconds=steps.seconds,
    )


def _start(workspace: Workspace) -> Policy:
    """The policy to continue from: the serving one.

    Where the problem has changed so that no version fits, it is a uniform one that is not published: a service must
    not find it in place of what was learnt.
    """
    publish_first(workspace)
    try:
        return workspace.start()
    except OtherProblem:
        stated = workspace.config.policy
        return Policy.uniform(workspace.problem, seed=stated.seed, floor=stated.floor)


def _serving(head: Entry | None, policy: Policy) -> int:
    return policy.version if head is None or head.serving is None else head.serving


def _paused(workspace: Workspace) -> UpdateReport | None:
    """The report while updates are paused; None if they are not.

    Nothing is flushed or joined either: a join is final, and rewards that come late may be the reason of the pause.
    """
    head = workspace.registry.head()
    if head is None or head.serving is None or head.paused is None:
        return None
    return UpdateReport(
        outcome="paused",
        why=paused_text(head.paused),
        serving=head.serving,
        observations=0,
        cut=last_cut(workspace.lake),
    )


def _outcome_text(outcome: Outcome, version: int, before: int, pinned: Hold | None) -> str:
    until = f"is pinned {pinned.in_words}; potstill unpin or promote ends it" if pinned else "until potstill promote"
    return {
        "published": f"version {version} now serves",
        "staged": f"version {version} is staged; version {before} keeps serving{' and ' if pinned else ' '}{until}",
        "refused": f"version {version} is kept but does not serve; version {before} keeps serving",
    }[outcome]


class _Steps:
    """The current step and the duration of each step."""

    def __init__(self, on_step: OnStep | None) -> None:
        self.seconds: dict[str, float] = {}
        self._on_step = on_step
        self._step, self._began = "", 0.0

    def begin(self, step: str) -> None:
        at = time.perf_counter()
        if self._step:
            self.seconds[self._step] = at - self._began
        self._step, self._began = step, at
        self.progress(0, 0)

    def progress(self, done: int, of: int) -> None:
        if self._on_step is not None:
            self._on_step(self._step, done, of)
