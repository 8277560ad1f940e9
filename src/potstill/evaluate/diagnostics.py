"""Whether an off-policy estimate can be trusted: diagnostics of its weights and events, and a verdict in words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Grade = Literal["good", "caution", "no"]
# Thresholds. A weight is the target's probability over the propensity.
#: Effective sample size below which the estimate is a guess. With skewed weights, normal intervals of nominal 95 %
#: cover 91 % at 30, and 94 % at 100 (`benchmarks/coverage.py`).
FEW = 100
#: Effective sample size from which normal intervals cover 95 % in the same benchmark, with room for more skew.
ENOUGH = 1_000
#: Effective number of events from which the default interval covers 93 to 97 % with all weights of
#: `benchmarks/coverage_events.py`, and up to 99 % where few logs have enough rows; below, 93 to 99 %. They are counted
#: as expected from the rows of other policies: an estimate that is called good only if its own events happen to be many
#: is too high on average.
ENOUGH_EVENTS = 20
#: ... and how many must have been seen. Far more than `ENOUGH_EVENTS` are enough regardless of what was expected.
SEEN_EVENTS, SURE_EVENTS = ENOUGH_EVENTS // 2, 4 * ENOUGH_EVENTS
#: Share of rows that other policies must have, to say what to expect; otherwise all rows do.
_OTHER_ROWS = 0.1
#: Share of the target's probability on actions that were never logged, above which a caution is due: the value may be
#: off by the same share of the reward's range, which is as large as a typical improvement.
UNSUPPORTED_CAUTION = 0.01
#: ... and above which the estimate is unreliable.
UNSUPPORTED_NO = 0.10
#: Share of all weight in the largest 1 % of the weights, above which the effective sample size may be overstated:
#: equally heavy rows that happened not to be logged are not in the sum. Equal weights have 1 %.
FEW_ROWS = 0.50
#: Standard errors by which the mean weight may differ from 1; by chance it does in 1 of 16,000 logs.
MEAN_WEIGHT_ERRORS = 4.0
#: ... and the difference that matters: 2 % of the value.
MEAN_WEIGHT_GAP = 0.02
_MORE = "Log more rows, serve with a higher floor, or evaluate a policy nearer to the one that served."
_NEARER = "Serve with a floor, so that every action is tried, or evaluate a policy nearer to the one that served."
_RIGHT = "Check that each row has the probability with which its action was drawn, and that no rows are missing."
_REPLAY = "the log's actions were not uniformly random, so replay is biased"
_MODEL = "the intervals leave out how wrong the reward model is"
_OTHERS = "Use another estimator, such as dr or snips."


class HasWeights(Protocol):
    """The columns of `Terms` that diagnostics need."""

    @property
    def weight(self) -> Values:
        """Importance weights, float64[N]."""

    @property
    def reward(self) -> Values:
        """Rewards, float64[N]."""

    @property
    def missing(self) -> Values:
        """The target's probability of eligible actions that the log never took, float64[N]."""


class Diagnostics(msgspec.Struct, frozen=True, kw_only=True):
    """Diagnostics of importance weights and events.

    An event is a row whose reward is not the usual one: the reward that more than half of the weight has, such as that
    of no click. Without a usual reward, every row counts.

    Attributes:
        rows: Number of logged rows.
        effective: Effective sample size, (Σw)² / Σw².
        effective_share: Effective sample size over the number of rows.
        largest: Largest weight.
        largest_share: Share of the largest weight in the total weight.
        top_share: Share of the largest 1 % of the positive weights (at least one) in the total weight.
        unsupported: Mean probability that the target puts on eligible actions that were never logged.
        mean_weight: Mean weight; about 1 minus `unsupported` if the logged propensities are right.
        mean_weight_error: Standard error of the mean weight.
        usual: Usual reward; None if there is none.
        events: Effective number of events, (Σwe)² / Σ(we)², where e is how far the reward is from the usual one.
        expected_events: Effective sample size times the share of events in the rows that other policies would have, by
            weights from 1 where this one's are 0 to 0 where they are largest.
    """

    rows: int
    effective: float
    effective_share: float
    largest: float
    largest_share: float
    top_share: float
    unsupported: float
    mean_weight: float
    mean_weight_error: float
    usual: float | None = None
    events: float = 0.0
    expected_events: float = 0.0

    @property
    def has_few_events(self) -> bool:
        """Whether there are too few events for a precise interval, or would be but for chance."""
        too_few = self.events < SEEN_EVENTS or self.expected_events < ENOUGH_EVENTS
        return too_few and self.events < SURE_EVENTS

    @property
    def mean_weight_is_off(self) -> bool:
        """Whether the mean weight differs from its expectation by more than chance explains."""
        gap = abs(self.mean_weight - (1 - self.unsupported))
        return gap > MEAN_WEIGHT_GAP and gap > MEAN_WEIGHT_ERRORS * self.mean_weight_error


class Trust(msgspec.Struct, frozen=True):
    """A verdict on an estimate.

    Attributes:
        grade: `good`, `caution` or `no`.
        sentence: The reason, in plain words.
        advice: The way out; empty if the grade is good.
    """

    grade: Grade
    sentence: str
    advice: str = ""


def diagnose(terms: HasWeights) -> Diagnostics:
    """Diagnostics of the weights; all 0 for a log without rows."""
    weights = terms.weight
    n, total = len(weights), float(weights.sum())
    largest = float(weights.max(initial=0.0))
    effective = effective_count(weights)
    usual = usual_reward(terms.reward, weights)
    unusual = None if usual is None else np.abs(terms.reward - usual)
    return Diagnostics(
        rows=n,
        effective=effective,
        effective_share=effective / n if n else 0.0,
        largest=largest,
        largest_share=largest / total if total else 0.0,
        top_share=_top(weights) / total if total else 0.0,
        unsupported=float(terms.missing.mean()) if n else 0.0,
        mean_weight=total / n if n else 0.0,
        mean_weight_error=float(np.std(weights, ddof=1)) / math.sqrt(n) if n > 1 else 0.0,
        usual=usual,
        events=effective if unusual is None else effective_count(weights * unusual),
        expected_events=effective * (1.0 if unusual is None else _share_elsewhere(unusual > 0, weights)),
    )


def effective_count(weights: Values) -> float:
    """The number of equal weights that are worth as much, (Σw)² / Σw²."""
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / squares if squares else 0.0


def _share_elsewhere(events: NDArray[np.bool_], weights: Values) -> float:
    others = 1 - weights / (weights.max() or 1.0)
    total = float(others.sum())
    return float(others @ events) / total if total > _OTHER_ROWS * len(events) else float(events.mean())


def usual_reward(rewards: Values, weights: Values) -> float | None:
    """The reward that has more than half of the weight: the smallest, the largest or the median one, or none."""
    left = total = float(weights.sum())
    for each in _candidates(rewards):
        weight = float(weights @ (rewards == each))
        if 2 * weight > total:
            return each
        left -= weight
        if 2 * left < total:  # no other reward can have more than half
            return None
    return None


def _candidates(rewards: Values) -> Iterator[float]:
    if len(rewards):
        yield float(rewards.min())
        yield float(rewards.max())
        yield float(np.partition(rewards, len(rewards) // 2)[len(rewards) // 2])


def trust(diagnostics: Diagnostics) -> Trust:
    """Whether an estimate with these weights is reliable; of several doubts, the gravest."""
    rows, effective = f"{diagnostics.rows:,}", f"{diagnostics.effective:,.0f}"
    worth = f"The {rows} logged rows say as much about this policy as {effective} rows of its own would"
    good = Trust("good", f"{worth}{_events(diagnostics)}.")
    return min(_doubts(diagnostics, worth), key=lambda doubt: doubt.grade != "no", default=good)


def _doubts(d: Diagnostics, worth: str) -> Iterator[Trust]:
    """Reasons not to trust, in the order in which to fix them."""
    if not d.effective:
        yield Trust("no", f"In none of the {d.rows:,} logged rows was an action taken that the policy takes.", _NEARER)
    if d.unsupported > UNSUPPORTED_CAUTION:
        grade: Grade = "no" if d.unsupported > UNSUPPORTED_NO else "caution"
        share = f"{100 * d.unsupported:.0f} % of what the policy would do was never logged"
        yield Trust(grade, f"{share}, so nothing is known of its rewards.", _NEARER)
    if d.mean_weight_is_off:
        yield Trust("no", _off(d), _RIGHT)
    if d.effective < FEW:
        yield Trust("no", f"{worth}, which is too few.", _MORE)
    if d.top_share > FEW_ROWS:
        yield Trust("caution", f"1 % of the rows that count decide {100 * d.top_share:.0f} % of the estimate.", _MORE)
    if d.usual is not None and d.has_few_events:
        yield Trust("caution", f"{worth}, but {_few_events(d)}, so the interval is rough.", _MORE)
    if d.effective < ENOUGH:
        yield Trust("caution", f"{worth}, so the interval is rough.", _MORE)


def _events(d: Diagnostics) -> str:
    return "" if d.usual is None else f", about {d.events:,.0f} of them with a reward other than {d.usual:g}"


def _few_events(d: Diagnostics) -> str:
    count = d.events if d.events < ENOUGH_EVENTS else d.expected_events
    few = f"only about {count:,.0f}" if count >= 0.5 else "none"
    luck = "" if d.events < ENOUGH_EVENTS else " to be expected"
    return f"{few} of these{luck} with a reward other than {d.usual:g}"


#: Propensities are of all rows that were logged: those of the rows that are left add up to less.
_CHOSEN = ", or rows were left out by their action, such as one that was removed from the problem"


def _off(d: Diagnostics) -> str:
    """What a wrong mean weight means. Too low a mean also results when rare, heavy rows happen not to be logged."""
    expected = 1 - d.unsupported
    low = d.mean_weight < expected
    rare = ", or actions that the policy takes are all but absent from the log" if low else _CHOSEN
    wrong = f"Weights should average {expected:.2f} but average {d.mean_weight:.2f}: the logged probabilities are wrong"
    return f"{wrong}{rare}."


def _top(weights: Values) -> float:
    """The sum of the largest 1 % of the weights above 0."""
    counting = weights[weights > 0]
    top = math.ceil(len(counting) / 100)
    return float(np.partition(counting, len(counting) - top)[len(counting) - top :].sum())


def estimator_note(estimator: str, *, uniform: bool) -> str:
    """Why an estimator may be biased on a log, with uniformly random actions or not; empty for most."""
    if estimator == "replay" and not uniform:
        return _REPLAY
    return _MODEL if estimator == "dm" else ""


def with_estimator_note(found: Trust, note: str) -> Trust:
    """The verdict on an estimate with such a note: `no` for a biased one, `caution` at best otherwise."""
    if not note or (found.grade != "good" and note != _REPLAY):
        return found
    return Trust("no" if note == _REPLAY else "caution", f"{note[0].upper()}{note[1:]}.", _OTHERS)
