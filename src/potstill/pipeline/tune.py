"""Hyperparameter selection on the log, by progressive validation.

The log is split into parts by time. A candidate is trained on the first part and evaluated off-policy on the second,
then trained on the second and evaluated on the third, and so on, as updates would have happened. The winner is selected
on all parts but the last. Its reported value comes from the last part, which is held out: on the parts used for
selection, the value of the best candidate is biased upwards.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.distill import Still, student_from_config
from potstill.errors import InvalidLog, InvalidOption
from potstill.evaluate import (
    ESTIMATORS,
    IntervalOptions,
    LakeLog,
    Parts,
    PointEstimate,
    Trust,
    compute_terms,
    diagnose,
    estimator_note,
    fitted,
    target,
    trust,
    with_estimator_note,
)
from potstill.parallel import advance, parallel_map
from potstill.pipeline.candidates import PRESENT, Candidate
from potstill.pipeline.load_teacher import load_teacher
from potstill.problem import Observations, Reward
from potstill.workspace import Workspace

#: Smallest number of decisions in a part.
LEAST = 100

Float64 = NDArray[np.float64]


class IntervalEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """A value with its confidence interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, point: PointEstimate, stated: Reward, level: float) -> IntervalEstimate:
        """An estimate with the default interval of `potstill evaluate`."""
        made = point.with_intervals(IntervalOptions.default(point.reward, stated, level))
        if made.value is None:
            return cls(value=math.nan, low=-math.inf, high=math.inf)
        return cls(value=made.value, low=made.intervals["likelihood"].low, high=made.intervals["likelihood"].high)


class CandidateResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a candidate on the parts used for selection.

    Attributes:
        candidate: The settings.
        earned: Estimated reward per decision.
        difference: Difference to the present settings on the same decisions; None for the present settings.
        kl: Held-out divergence from the teacher in nats, mean over updates.
        seconds: Duration of its updates.
    """

    candidate: Candidate
    earned: IntervalEstimate
    difference: IntervalEstimate | None
    kl: float
    seconds: float


class TuningResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a hyperparameter selection.

    Attributes:
        rows: Number of usable decisions in the log.
        parts: Number of parts that the log was split into.
        estimator: Name of the estimator.
        level: Confidence level of intervals.
        tried: Results of the candidates, the best first.
        earned: Estimated reward of the winner in the last, held-out part.
        difference: Difference to the present settings in the last part; None if these won.
        trust: Verdict on the estimate of the winner.
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
        """The settings with the highest estimated reward."""
        return self.tried[0].candidate


def run_tuning(
    workspace: Workspace,
    candidates: Sequence[Candidate],
    *,
    parts: int = 4,
    estimator: str = "dr",
    level: float = 0.95,
    jobs: int = 1,
    on_progress: Callable[[int], None] = lambda _: None,
) -> TuningResult:
    """Compare settings on a workspace's log. Results do not depend on the number of jobs.

    Args:
        workspace: The workspace.
        candidates: The settings, the present ones first.
        parts: Number of parts to split the log into: one for training only, one or more for selection, one held out.
        estimator: One of `potstill.evaluate.ESTIMATORS`.
        level: Confidence level of intervals.
        jobs: Number of processes.
        on_progress: Called with the number of finished updates, of ``len(candidates) * (parts - 1)``.
    """
    if parts < 3:
        raise InvalidOption(f"parts must be at least 3: for training, for selection, and held out; got {parts}")
    if estimator not in ESTIMATORS:
        raise InvalidOption(f"unknown estimator {estimator!r}; there are {', '.join(ESTIMATORS)}")
    log = LakeLog(workspace)
    bounds = _bounds(log, parts)
    tasks = [_Task(workspace.url, candidate, bounds, estimator) for candidate in candidates]
    runs = parallel_map(_run, tasks, jobs=jobs, steps=len(tasks) * (parts - 1), on_progress=on_progress)
    present, reward = runs[0], workspace.problem.reward
    tried = [_result(candidate, run, present, reward, level) for candidate, run in zip(candidates, runs, strict=True)]
    best = max(range(len(tried)), key=lambda i: (tried[i].earned.value, -i))
    return TuningResult(
        rows=len(log),
        parts=parts,
        estimator=estimator,
        level=level,
        tried=sorted(tried, key=lambda one: -one.earned.value),
        earned=IntervalEstimate.of(runs[best].last, reward, level),
        difference=IntervalEstimate.of(runs[best].last - present.last, reward, level) if best else None,
        trust=runs[best].trust,
    )


class _Task(msgspec.Struct, frozen=True):
    """A candidate, a workspace, and the times that split its log."""

    url: str
    candidate: Candidate
    bounds: list[int]
    estimator: str


class _Run(msgspec.Struct, frozen=True):
    """Estimates of a candidate on each part but the first, rewards of these, and statistics of its updates."""

    estimator: str
    parts: list[Parts]
    rewards: list[Float64]
    kl: float
    seconds: float
    trust: Trust

    @property
    def selection(self) -> PointEstimate:
        """The estimate on the parts used for selection."""
        return PointEstimate.pooled(self.estimator, self.parts[:-1], self.rewards[:-1])

    @property
    def last(self) -> PointEstimate:
        """The estimate on the last part."""
        return PointEstimate.pooled(self.estimator, self.parts[-1:], self.rewards[-1:])


def _run(task: _Task) -> _Run:
    """Train on each part and evaluate on the next."""
    workspace, candidate = Workspace(task.url), task.candidate
    stated = workspace.config.policy
    teacher = load_teacher(workspace, candidate.teacher)
    still = Still(
        workspace.problem,
        teacher,
        student=student_from_config(candidate.student, teacher),
        seed=stated.seed,
        floor=stated.floor,
    )
    estimates, rewards, divergences, took = [], [], [], 0.0
    ranges = [LakeLog(workspace, since=since, until=until) for since, until in pairwise(task.bounds)]
    for training, validation in pairwise(ranges):
        began = time.perf_counter()
        divergences.append(still.update(_observations(training)).fidelity.kl_mean)
        took += time.perf_counter() - began
        policy = target(workspace.problem, still.policy)
        computed = compute_terms(validation, [policy], fitted(None, validation), seed=stated.seed)
        (terms,) = computed.terms
        estimates.append(ESTIMATORS[task.estimator](terms))
        rewards.append(terms.reward)
        note = estimator_note(task.estimator, uniform=computed.uniform)
        verdict = with_estimator_note(trust(diagnose(terms)), note)
        advance()
    return _Run(task.estimator, estimates, rewards, float(np.mean(divergences)), took, verdict)


def _observations(log: LakeLog) -> Iterator[Observations]:
    for block in log.blocks():
        propensities = block.propensities.astype(np.float32)
        yield Observations(log.problem, block.contexts, block.actions, block.rewards, propensities)


def _bounds(log: LakeLog, parts: int) -> list[int]:
    """Times that split the log into parts of about equally many decisions."""
    times = log.times
    if len(times) < parts * LEAST:
        raise InvalidLog(
            f"the log has {len(times):,} decisions with exact propensities, too few for {parts} parts of at least "
            f"{LEAST}: log more, or use fewer parts with --parts"
        )
    bounds = [int(times[len(times) * part // parts]) for part in range(parts)] + [int(times[-1]) + 1]
    if any(first == second for first, second in pairwise(bounds)):
        raise InvalidLog("too many decisions have the same time to split the log into parts; use fewer with --parts")
    return bounds


def _result(candidate: Candidate, run: _Run, present: _Run, reward: Reward, level: float) -> CandidateResult:
    difference = None if candidate.name == PRESENT else run.selection - present.selection
    return CandidateResult(
        candidate=candidate,
        earned=IntervalEstimate.of(run.selection, reward, level),
        difference=None if difference is None else IntervalEstimate.of(difference, reward, level),
        kl=run.kl,
        seconds=run.seconds,
    )
