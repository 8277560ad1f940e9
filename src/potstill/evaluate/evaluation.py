"""The value of a target on a log: estimates, their trustworthiness, by segment and over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidLog, InvalidOption
from potstill.evaluate import targets
from potstill.evaluate.bandwidth import bandwidth_of, with_bandwidths
from potstill.evaluate.blocks import LogWithSupport
from potstill.evaluate.diagnostics import (
    Diagnostics,
    Trust,
    diagnose,
    estimator_note,
    trust,
    with_estimator_note,
)
from potstill.evaluate.estimates import (
    INTERVALS,
    IntervalName,
    IntervalOptions,
    OffPolicyEstimate,
    PointEstimate,
    reward_ends,
)
from potstill.evaluate.estimators import ESTIMATORS, Estimator
from potstill.evaluate.intervals import check_level
from potstill.evaluate.log import Log
from potstill.evaluate.models import ModelLike, fitted
from potstill.evaluate.segments import Over, RowGroups, by_value, over_time
from potstill.evaluate.targets import Target, TargetLike
from potstill.evaluate.terms import LogTerms, Terms, compute_terms
from potstill.evaluate.training_overlap import training_rows, with_training_overlap
from potstill.keys import Key
from potstill.spaces import Parts

#: Headline estimator, if it is among those requested.
HEADLINE = "dr"


class TargetEvaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The evaluation of one target.

    Attributes:
        name: Name of the target.
        estimates: Estimates by estimator.
        diagnostics: Diagnostics of the importance weights.
        trust: Verdict on the headline estimate.
        learnt: Number of rows that the target was trained on; None if it was trained on some rows, but the log cannot
            tell on which.
        bandwidth: How far rewards of nearby numbers count, as a share of the scale, if the target gives one number per
            row. Estimates are then of the target smoothed by that much, and intervals do not cover the difference.
    """

    name: str
    estimates: dict[str, OffPolicyEstimate]
    diagnostics: Diagnostics
    trust: Trust
    learnt: int | None = 0
    bandwidth: float | None = None


class SegmentEvaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The evaluation of some rows, by the headline estimator.

    Attributes:
        name: Name of the segment.
        rows: Number of rows.
        share: Share of all rows.
        start: Start of a period, microseconds since 1970.
        logged: Mean logged reward.
        target: Value of the target.
        against: Value of the other target.
        difference: Target minus against.
        trust: Verdict on the target's estimate.
    """

    name: str
    rows: int
    share: float
    start: int | None = None
    logged: OffPolicyEstimate
    target: OffPolicyEstimate
    against: OffPolicyEstimate | None = None
    difference: OffPolicyEstimate | None = None
    trust: Trust


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a target on a log. It can be written as JSON.

    Attributes:
        problem: Name of the problem.
        rows: Number of rows of the log.
        level: Confidence level of all intervals.
        headline: Headline estimator.
        logged: Mean logged reward.
        target: Evaluation of the target.
        against: Evaluation of the other target, if there is one.
        difference: Target minus against, by estimator, from the same rows.
        segments: Evaluations of segments, by feature.
        stretches: Evaluations of periods of time.
    """

    problem: str
    rows: int
    level: float
    headline: str
    logged: OffPolicyEstimate
    target: TargetEvaluation
    against: TargetEvaluation | None = None
    difference: dict[str, OffPolicyEstimate] | None = None
    segments: dict[str, tuple[SegmentEvaluation, ...]] = {}
    stretches: tuple[SegmentEvaluation, ...] = ()

    @property
    def estimate(self) -> OffPolicyEstimate:
        """The headline estimate of the target."""
        return self.target.estimates[self.headline]


def evaluate(
    log: Log,
    target: TargetLike,
    against: TargetLike | None = None,
    *,
    estimators: Sequence[str] | Mapping[str, Estimator] = tuple(ESTIMATORS),
    intervals: Sequence[IntervalName] = ("likelihood",),
    model: ModelLike | None = None,
    level: float = 0.95,
    seed: int = 0,
    by: str | Sequence[str] | None = None,
    over: Over | None = None,
    smallest: float | None = None,
    learnt: Mapping[str, int] | None = None,
    bandwidth: float | None = None,
) -> Evaluation:
    """Estimate what a target would have earned on a log.

    >>> evaluate(log, "720p").estimate.value  # doctest: +SKIP
    0.41

    Args:
        log: Logged decisions with rewards and propensities.
        target: What to evaluate: a policy, an action, a function; see `potstill.evaluate.target`.
        against: Another target to compare with on the same rows; ``"logged"`` is what was done.
        estimators: Names from `ESTIMATORS`, or functions of your own by name.
        intervals: ``"likelihood"``, ``"normal"``, ``"bootstrap"``, ``"bernstein"``, ``"exact"``; the anytime-valid one
            is always there.
        model: Reward model; `RidgeModel` if left out.
        level: Confidence level of intervals.
        seed: Seed of replay's draws and of the bootstrap.
        by: Features to segment by.
        over: Periods of time: ``"day"``, ``"week"``, or a number of periods with equally many rows.
        smallest: Smallest propensity that could have been logged, for exact bounds; the smallest in the log if left
            out.
        learnt: Number of rows that targets were trained on, by name: 0 for rows that were held out. By default a policy
            is taken at its lineage: see `training_rows`.
        bandwidth: For a target that gives one number per row: how far rewards of nearby numbers count, as a share of
            the scale from low to high. Chosen from the log if left out.
    """
    check_level(level)
    chosen, names = _chosen(estimators), _checked_names(intervals)
    features = (by,) if isinstance(by, str) else tuple(by or ())
    made = [targets.target(log.problem, each) for each in (target, *(() if against is None else (against,)))]
    supported = LogWithSupport(log)
    fit = fitted(model, supported)
    made = with_bandwidths(made, supported, fit, chosen[_headline(chosen)], bandwidth)
    log_terms = compute_terms(supported, made, fit, by=features, seed=seed)
    options = IntervalOptions(
        names=names,
        level=level,
        low=log.problem.maximised.low,
        high=log.problem.maximised.high,
        largest=_largest(log_terms.terms, smallest, density=log.problem.actions.measure == "lebesgue"),
        ends=reward_ends(log_terms.terms[0].reward, log.problem.maximised),
        caveat="" if smallest else "valid if no propensity could be smaller than the smallest in the log",
        key=Key(seed).child("bootstrap"),
    )
    trained = {each.name: training_rows(log, each) for each in made} | dict(learnt or {})
    return _Comparison(log.problem.name, made, log_terms, chosen, options, trained).evaluation(over)


class _Comparison:
    """One or two targets on the same rows."""

    def __init__(
        self,
        problem: str,
        made: Sequence[Target],
        log_terms: LogTerms,
        chosen: Mapping[str, Estimator],
        options: IntervalOptions,
        learnt: Mapping[str, int | None],
    ) -> None:
        self.problem, self.made, self.log_terms, self.options = problem, made, log_terms, options
        self.learnt = learnt
        self.headline = _headline(chosen)
        reward = log_terms.terms[0].reward
        self.logged = PointEstimate.of("logged", _mean(reward), log_terms.terms[0], options)
        self.points = [
            {name: PointEstimate.of(name, estimator(terms), terms, options) for name, estimator in chosen.items()}
            for terms in log_terms.terms
        ]

    def evaluation(self, over: Over | None) -> Evaluation:
        sides = [
            self._target_evaluation(target, points, terms, self.learnt[target.name])
            for target, points, terms in zip(self.made, self.points, self.log_terms.terms, strict=True)
        ]
        return Evaluation(
            problem=self.problem,
            rows=len(self.log_terms.terms[0]),
            level=self.options.level,
            headline=self.headline,
            logged=self.logged.with_intervals(self.options),
            target=sides[0],
            against=sides[1] if len(sides) > 1 else None,
            difference=self._estimates(self._differences()) if len(sides) > 1 else None,
            segments={name: self._segments(by_value(values)) for name, values in self.log_terms.groups.items()},
            stretches=() if over is None else self._segments(over_time(self._times(), over)),
        )

    def _differences(self) -> dict[str, PointEstimate]:
        target, against = self.points
        return {name: point - against[name] for name, point in target.items()}

    def _target_evaluation(
        self, target: Target, points: Mapping[str, PointEstimate], terms: Terms, learnt: int | None
    ) -> TargetEvaluation:
        diagnostics = diagnose(terms)
        found = with_training_overlap(self._trust(diagnostics), learnt, len(terms))
        return TargetEvaluation(
            name=target.name,
            estimates=self._estimates(points),
            diagnostics=diagnostics,
            trust=found,
            learnt=learnt,
            bandwidth=bandwidth_of(target),
        )

    def _trust(self, diagnostics: Diagnostics) -> Trust:
        return with_estimator_note(trust(diagnostics), self._note(self.headline))

    def _estimates(self, points: Mapping[str, PointEstimate]) -> dict[str, OffPolicyEstimate]:
        return {name: point.with_intervals(self.options, self._note(name)) for name, point in points.items()}

    def _note(self, estimator: str) -> str:
        return estimator_note(estimator, uniform=self.log_terms.uniform)

    def _times(self) -> NDArray[np.int64]:
        if self.log_terms.times is None:
            raise InvalidLog("the log has no times, so there are no periods of time; leave `over` out")
        return self.log_terms.times

    def _segments(self, grouping: RowGroups) -> tuple[SegmentEvaluation, ...]:
        starts = grouping.starts or (None,) * len(grouping.names)
        return tuple(
            self._segment(name, start, grouping.codes == code)
            for code, (name, start) in enumerate(zip(grouping.names, starts, strict=True))
        )

    def _segment(self, name: str, start: int | None, rows: NDArray[np.bool_]) -> SegmentEvaluation:
        points = [each[self.headline].where(rows) for each in self.points]
        note, count = self._note(self.headline), int(rows.sum())
        trained = (
            None if self.learnt[self.made[0].name] else self.learnt[self.made[0].name]
        )  # on some rows, here or not
        return SegmentEvaluation(
            name=name,
            rows=count,
            share=count / len(rows),
            start=start,
            logged=self.logged.where(rows).with_intervals(self.options),
            target=points[0].with_intervals(self.options, note),
            against=points[1].with_intervals(self.options, note) if len(points) > 1 else None,
            difference=(points[0] - points[1]).with_intervals(self.options, note) if len(points) > 1 else None,
            trust=with_training_overlap(self._trust(diagnose(self.log_terms.terms[0].where(rows))), trained, count),
        )


def _mean(reward: NDArray[np.float64]) -> Parts:
    return Parts(base=reward, largest=0.0, weight=np.ones_like(reward))


def _headline(chosen: Mapping[str, Estimator]) -> str:
    return HEADLINE if HEADLINE in chosen else next(iter(chosen))


def _chosen(estimators: Sequence[str] | Mapping[str, Estimator]) -> Mapping[str, Estimator]:
    if isinstance(estimators, Mapping):
        chosen = dict(estimators)
    else:
        unknown = [name for name in estimators if name not in ESTIMATORS]
        if unknown:
            raise InvalidOption(f"unknown estimator {unknown[0]!r}; there are {', '.join(ESTIMATORS)}")
        chosen = {name: ESTIMATORS[name] for name in estimators}
    if not chosen:
        raise InvalidOption(f"no estimator was requested; there are {', '.join(ESTIMATORS)}")
    return chosen


def _checked_names(intervals: Sequence[IntervalName]) -> tuple[IntervalName, ...]:
    unknown = [name for name in intervals if name not in INTERVALS]
    if unknown:
        raise InvalidOption(f"unknown interval {unknown[0]!r}; there are {', '.join(INTERVALS)}")
    return tuple(intervals)


def _largest(terms: Sequence[Terms], smallest: float | None, *, density: bool) -> float:
    """Largest weight that a row could have had; infinite for densities, as those of targets have no bound."""
    logged = float(terms[0].propensity.min())
    if smallest is None:
        smallest = logged
    if not 0 < smallest <= logged:
        raise InvalidOption(f"smallest must be above 0 and at most {logged:g}, the smallest in the log, got {smallest}")
    if density:
        return math.inf
    # Rounding: a target's probabilities may add up to slightly more than one.
    return max(1 / smallest, *(float(each.weight.max()) for each in terms))
