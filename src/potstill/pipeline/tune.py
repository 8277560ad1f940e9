"""Hyperparameters, compared on the log: what would each have earned, had it learnt and decided in its time?

The log is cut into parts by time. A candidate learns from the first, and its policy is judged on the second, which it
has not seen; then it learns from that, and is judged on the third; and so on, as updates would have come. The best is
chosen by all parts but the last. What is said of the winner comes from the last part, which had no say in choosing it:
the best of many looks better than it is where it was chosen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.distill import Still, Student
from potstill.errors import InvalidLog
from potstill.evaluate import (
    ESTIMATORS,
    LakeLog,
    Parts,
    Trust,
    compute_terms,
    diagnose,
    estimator_note,
    fitted,
    normal,
    target,
    trust,
    with_estimator_note,
)
from potstill.parallel import advance, mapped
from potstill.pipeline.candidates import PRESENT, Candidate
from potstill.problem import Observations
from potstill.teachers import from_config
from potstill.workspace import Workspace

#: Fewer decisions in a part than this tell nothing.
LEAST = 100

Float64 = NDArray[np.float64]


class IntervalEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """A value with its interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, influence: Float64, level: float) -> IntervalEstimate:
        """The mean of influences, float64[N], with a normal interval."""
        interval = normal(Parts(base=influence), level)
        return cls(value=float(influence.mean()), low=interval.low, high=interval.high)


class CandidateResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a candidate would have earned per decision, on the parts by which was chosen.

    Attributes:
        candidate: the settings.
        earned: per decision.
        difference: to the present settings, from the same decisions; None for these themselves.
        kl: held-out divergence from the teacher, in nats, the mean over updates.
        seconds: that its updates took.
    """

    candidate: Candidate
    earned: IntervalEstimate
    difference: IntervalEstimate | None
    kl: float
    seconds: float


class TuningResult(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison of settings.

    Attributes:
        rows: decisions in the log that could be used.
        parts: into which it was cut.
        estimator: by which policies were judged.
        level: the confidence of intervals.
        tried: the best first.
        earned: what the winner would have earned in the last part, which had no say in choosing it.
        difference: to the present settings there; None if these have won.
        trust: whether the log can tell of the winner, in words.
    """

    rows: int
    parts: int
    estimator: str
    level: float
    tried: list[CandidateResult]
    earned: IntervalEstimate
    difference: IntervalEstimate | None
    trust: Trust

    @property
    def winner(self) -> Candidate:
        """The settings that earned the most."""
        return self.tried[0].candidate


def tune(
    workspace: Workspace,
    candidates: Sequence[Candidate],
    *,
    parts: int = 4,
    estimator: str = "dr",
    level: float = 0.95,
    jobs: int = 1,
    on_progress: Callable[[int], None] = lambda _: None,
) -> TuningResult:
    """Compare settings on a workspace's log; equal results for any number of jobs.

    Args:
        workspace: the workspace.
        candidates: the settings, the present ones first.
        parts: into which to cut the log: one to begin with, one or more to choose by, and the last.
        estimator: of `potstill.evaluate.ESTIMATORS`.
        level: the confidence of intervals.
        jobs: processes.
        on_progress: told how many updates are done, of ``len(candidates) * (parts - 1)``.
    """
    if parts < 3:
        raise ValueError(f"parts must be at least 3: to begin with, to choose by, and to judge the winner; got {parts}")
    if estimator not in ESTIMATORS:
        raise ValueError(f"unknown estimator {estimator!r}; there are {', '.join(ESTIMATORS)}")
    log = LakeLog(workspace)
    bounds = _bounds(log, parts)
    tasks = [_Task(workspace.url, candidate, bounds, estimator) for candidate in candidates]
    runs = mapped(_run, tasks, jobs=jobs, steps=len(tasks) * (parts - 1), on_progress=on_progress)
    present = runs[0]
    tried = [_tried(candidate, run, present, level) for candidate, run in zip(candidates, runs, strict=True)]
    best = max(range(len(tried)), key=lambda i: (tried[i].earned.value, -i))
    return TuningResult(
        rows=len(log),
        parts=parts,
        estimator=estimator,
        level=level,
        tried=sorted(tried, key=lambda one: -one.earned.value),
        earned=IntervalEstimate.of(runs[best].influences[-1], level),
        difference=_less(runs[best].influences[-1], present.influences[-1], level) if best else None,
        trust=runs[best].trust,
    )


class _Task(msgspec.Struct, frozen=True):
    """A candidate to try: on the log of which workspace, cut at which times."""

    url: str
    candidate: Candidate
    bounds: list[int]
    estimator: str


class _Run(msgspec.Struct, frozen=True):
    """A candidate that was tried: influences on each part but the first, and how its updates went."""

    influences: list[Float64]
    kl: float
    seconds: float
    trust: Trust


def _run(task: _Task) -> _Run:
    """Learn and be judged, part after part."""
    workspace, candidate = Workspace(task.url), task.candidate
    stated = workspace.config.policy
    still = Still(
        workspace.problem,
        from_config(candidate.teacher),
        student=msgspec.convert(candidate.student, Student),
        seed=stated.seed,
        floor=stated.floor,
    )
    influences, divergences, took = [], [], 0.0
    ranges = [LakeLog(workspace, since=since, until=until) for since, until in pairwise(task.bounds)]
    for learnt, judged in pairwise(ranges):
        began = time.perf_counter()
        divergences.append(still.update(_observations(learnt)).fidelity.kl_mean)
        took += time.perf_counter() - began
        policy = target(workspace.problem, still.policy)
        computed = compute_terms(judged, [policy], fitted(None, judged), seed=stated.seed)
        (terms,) = computed.terms
        influences.append(ESTIMATORS[task.estimator](terms).influence)
        note = estimator_note(task.estimator, uniform=computed.uniform)
        verdict = with_estimator_note(trust(diagnose(terms)), note)
        advance()
    return _Run(influences, float(np.mean(divergences)), took, verdict)


def _observations(log: LakeLog) -> Iterator[Observations]:
    for block in log.blocks():
        propensities = block.propensities.astype(np.float32)
        yield Observations(log.problem, block.contexts, block.actions, block.rewards, propensities)


def _bounds(log: LakeLog, parts: int) -> list[int]:
    """Times that cut the log into parts of about equally many decisions."""
    times = log.times
    if len(times) < parts * LEAST:
        raise InvalidLog(
            f"there are {len(times):,} logged decisions with exact propensities, and {parts} parts of at least {LEAST} "
            "are wanted: log more, or ask for fewer parts with --parts"
        )
    bounds = [int(times[len(times) * part // parts]) for part in range(parts)] + [int(times[-1]) + 1]
    if any(first == second for first, second in pairwise(bounds)):
        raise InvalidLog("too many decisions have the same time to cut the log into parts; ask for fewer with --parts")
    return bounds


def _tried(candidate: Candidate, run: _Run, present: _Run, level: float) -> CandidateResult:
    chosen_by, theirs = (np.concatenate(one.influences[:-1]) for one in (run, present))
    return CandidateResult(
        candidate=candidate,
        earned=IntervalEstimate.of(chosen_by, level),
        difference=None if candidate.name == PRESENT else _less(chosen_by, theirs, level),
        kl=run.kl,
        seconds=run.seconds,
    )


def _less(influence: Float64, other: Float64, level: float) -> IntervalEstimate:
    return IntervalEstimate.of(influence - other, level)
