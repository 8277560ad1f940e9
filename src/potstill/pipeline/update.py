"""One update of a workspace: flush → join → learn → label → imitate → gates → publish.

What a step has done is durable before the next one begins, and each step finds out by itself what is left to do. So an
update that was killed anywhere is picked up by the next one.
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
from potstill.events import now as clock
from potstill.events.join import JoinReport, join, last_cut, preview
from potstill.events.lake import Flusher, FlushReport, ObservationChunk, count_observations, observation_chunks
from potstill.events.wal import Spool
from potstill.files import hold
from potstill.pipeline.contexts import extra_contexts
from potstill.pipeline.engines import Engine, LocalEngine
from potstill.pipeline.gates import Comparison, compare, objections
from potstill.pipeline.labels import FOLDER, LabelStore, forget_labels
from potstill.pipeline.origin import Origin
from potstill.pipeline.resume import Start, start
from potstill.storage import child
from potstill.workspace import Workspace

#: Called with each step as it begins, and with its progress.
OnStep = Callable[[str, int, int], None]
STEPS = ("flush", "join", "learn", "label", "imitate", "check", "publish", "done")
Outcome = Literal["published", "staged", "refused", "waiting"]


class Busy(PotstillError, BlockingIOError):
    """Another updater is at work on this workspace."""


@contextmanager
def only_updater(workspace: Workspace, *, wait: bool) -> Iterator[None]:
    """Hold the workspace's update lock; `Busy` if another has it and `wait` is false. It ends with the process."""
    workspace.spool.mkdir(parents=True, exist_ok=True)
    held = hold(workspace.spool / "update.lock", wait=wait)
    if held is None:
        raise Busy(f"another update of {workspace.url} is running; try again later, or wait for it with --wait")
    try:
        yield
    finally:
        os.close(held)


class UpdateReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an update did, or would do.

    Attributes:
        outcome: ``waiting`` for more observations; ``published`` and serving; ``staged``, as was asked for; or
            ``refused``, with reasons, and kept.
        why: The outcome in words.
        version: Version that was made, if any.
        serving: The version that serves now.
        observations: New ones, that the version has learnt from, or that wait.
        cut: Up to which they go.
        why_anew: Why the teacher learnt from all observations again, if it did.
        reasons: Against serving.
        flushed: What went from the log to the lake.
        joined: What became of decisions and rewards.
        still: The batch.
        contexts_unfit: Rows of the table of further contexts that were left out, since they do not fit.
        compared: What the log says of the new policy against the serving one; None if it cannot tell.
        seconds: Seconds of each step.
    """

    outcome: Outcome
    why: str
    version: int | None = None
    serving: int
    observations: int
    cut: int
    why_anew: str | None = None
    reasons: list[str] = []
    flushed: FlushReport | None = None
    joined: JoinReport
    still: Report | None = None
    contexts_unfit: int = 0
    compared: Comparison | None = None
    seconds: dict[str, float] = {}


def run_update(
    workspace: Workspace,
    *,
    stage: bool = False,
    force: bool = False,
    wait: bool = False,
    now: int | None = None,
    on_step: OnStep | None = None,
    engine: Engine | None = None,
) -> UpdateReport:
    """Learn from what has become final since the serving policy, distil a new one, and let it serve.

    Args:
        workspace: The workspace.
        stage: Publish the new version without letting it serve.
        force: Also when there are few or no new observations.
        wait: Wait for another updater to finish; otherwise `Busy`.
        now: Microseconds since 1970; a decision is final when its window has closed by then.
        on_step: Called with each step as it begins: step, how much of it is done, of how much (0: not known).
        engine: Where slices of the join, parts of observations and shards of contexts are worked on; in this process,
            if left out.
    """
    steps = _Steps(on_step)
    with only_updater(workspace, wait=wait):
        began = start(workspace, workspace.start())
        head = workspace.registry.head()
        steps.begin("flush")
        flushed = Flusher(Spool(workspace.spool), workspace.lake).flush()
        steps.begin("join")
        joined = join(
            workspace.lake,
            workspace.cuts,
            workspace.problem,
            aggregate=workspace.config.join.aggregate,
            settle=workspace.config.join.settle_seconds,
            now=clock() if now is None else now,
            on_progress=steps.progress,
            each=engine.map if engine else None,
        )
        cut = last_cut(workspace.lake)
        new = count_observations(workspace.lake, began.after, cut, without=began.without)
        so_far = UpdateReport(
            outcome="waiting",
            why=_waiting(workspace, new),
            serving=began.still.policy.version,
            observations=new,
            cut=cut,
            why_anew=began.why_anew,
            flushed=flushed,
            joined=joined,
        )
        if not force and too_few(workspace, new):
            steps.begin("done")
            return msgspec.structs.replace(so_far, seconds=steps.seconds)
        return _distil(workspace, began, head.number if head else 0, so_far, stage, steps, engine or LocalEngine())


def preview_update(workspace: Workspace, now: int | None = None) -> UpdateReport:
    """What an update would do now, without doing any of it. What is still in the log cannot be counted."""
    began = start(workspace, workspace.serving())
    rules = workspace.config.join
    joined = preview(
        workspace.lake,
        workspace.cuts,
        workspace.problem,
        aggregate=rules.aggregate,
        settle=rules.settle_seconds,
        now=clock() if now is None else now,
    )
    cut = last_cut(workspace.lake)
    new = count_observations(workspace.lake, began.after, cut, without=began.without) + joined.decisions
    few = too_few(workspace, new)
    why = _waiting(workspace, new) if few else f"an update would learn from {new:,} new observations"
    logged = Spool(workspace.spool).pending().bytes
    return UpdateReport(
        outcome="waiting" if few else "published",
        why=why + (f"; the log has {logged:,} bytes more, which an update moves into the lake first" if logged else ""),
        serving=began.still.policy.version,
        observations=new,
        cut=cut,
        why_anew=began.why_anew,
        joined=joined,
    )


def too_few(workspace: Workspace, new: int) -> bool:
    """Whether there is too little to learn from."""
    return new < max(workspace.config.update.min_observations, 1)


def _waiting(workspace: Workspace, new: int) -> str:
    wanted = max(workspace.config.update.min_observations, 1)
    return f"{new:,} new observations, and update.min_observations = {wanted:,} are wanted"


def _distil(
    workspace: Workspace,
    began: Start,
    expected: int,
    so_far: UpdateReport,
    stage: bool,
    steps: _Steps,
    engine: Engine,
) -> UpdateReport:
    registry, still, serving = workspace.registry, began.still, began.still.policy
    version = registry.next_version()
    further = extra_contexts(workspace, engine, LabelStore(child(workspace.url, FOLDER), version))

    def origin() -> dict[str, Any]:
        contexts = further.described if further else None
        found = Origin(base=began.base, after=began.after, cut=so_far.cut, contexts=contexts, without=began.without)
        return dict(msgspec.to_builtins(found))

    def observed(after: int, to: int) -> Iterator[ObservationChunk]:
        return observation_chunks(workspace.lake, workspace.problem, after, to, without=began.without)

    report = still.update(
        observed(began.after, so_far.cut),
        earlier=observed(0, began.after),
        contexts=further.contexts if further else None,
        version=version,
        origin=origin,
        on_stage=steps.begin,
        on_progress=lambda done, of: steps.progress(done, of or so_far.observations),
        each=engine.map,
    )
    so_far = msgspec.structs.replace(so_far, contexts_unfit=further.unfit if further else 0)
    steps.begin("check")
    compared = compare(workspace, still.policy, serving, began.after, so_far.cut)
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
    )
    registry.forget_states(workspace.config.update.states_kept)
    forget_labels(workspace.storage, version - workspace.config.update.labels_kept)
    steps.begin("done")
    outcome: Outcome = "refused" if reasons else "staged" if stage else "published"
    return msgspec.structs.replace(
        made,
        outcome=outcome,
        why=_said(outcome, version, so_far.serving),
        serving=so_far.serving if entry.serving is None else entry.serving,
        seconds=steps.seconds,
    )


def _said(outcome: Outcome, version: int, before: int) -> str:
    return {
        "published": f"version {version} serves from now on",
        "staged": f"version {version} is staged; version {before} serves on, until potstill promote",
        "refused": f"version {version} is kept but does not serve; version {before} serves on",
    }[outcome]


class _Steps:
    """The current step, and the seconds of each."""

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
