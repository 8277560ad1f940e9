"""Whether an off-policy estimate can be trusted: diagnostics of its importance weights, and a verdict in words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.evaluate.log import Block
from potstill.evaluate.targets import Target
from potstill.spaces import Distribution

#: Edges of histogram bins: four per factor of ten. Weights beyond the ends count in the outermost bins.
EDGES = 10.0 ** np.arange(-4, 6.01, 0.25)
#: Range of bins that are shown even without rows, so that small and large weights differ at a glance.
_AROUND_ONE = (0.1, 10.0)


Values = NDArray[np.float64]
Grade = Literal["good", "caution", "no"]
# Thresholds. A weight is the target's probability over the propensity.
#: Effective sample size below which the estimate is a guess. With skewed weights, normal intervals of nominal 95 %
#: cover 91 % at 30, and 94 % at 100 (`benchmarks/coverage.py`).
FEW = 100
#: Effective sample size from which normal intervals cover 95 % in the same benchmark, with room for more skew.
ENOUGH = 1_000
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
#: Share of the rows that a policy was trained on, above which its estimate rests mostly on training data.
LEARNT_CAUTION = 0.5
_REPLAY = "the log's actions were not uniformly random, so replay is biased"
_MODEL = "the intervals leave out how wrong the reward model is"
_OTHERS = "Use another estimator, such as dr or snips."
#: Caveat for policies that were trained on rows of the log, and the way out.
LOOKS_BETTER = "A policy looks a little better on what it has learnt from than it is."
UNSEEN = "--unseen takes later decisions only."


class WeightBin(NamedTuple):
    """Rows of similar weight.

    Attributes:
        low: Smallest weight.
        high: Largest weight.
        rows: Share of all rows.
        weight: Share of the total weight.
    """

    low: float
    high: float
    rows: float
    weight: float


class WeightHistogram:
    """A target that counts its importance weights while it is evaluated.

    Evaluate it on a log once: every pass counts the rows again.
    """

    def __init__(self, target: Target) -> None:
        self.name = target.name
        self._target = target
        self._rows = np.zeros(len(EDGES) - 1, np.int64)
        self._weight = np.zeros(len(EDGES) - 1)
        self._zero = 0

    def distribution(self, block: Block, first_row: int) -> Distribution:
        """The distribution of the target."""
        distribution = self._target.distribution(block, first_row)
        weights = distribution.propensity(block.actions) / block.propensities
        positive = weights[weights > 0]
        place = np.clip(np.searchsorted(EDGES, positive, side="right") - 1, 0, len(self._rows) - 1)
        self._zero += len(weights) - len(positive)
        self._rows += np.bincount(place, minlength=len(self._rows))
        self._weight += np.bincount(place, positive, minlength=len(self._rows))
        return distribution

    @property
    def zero(self) -> float:
        """The share of rows whose action the target never takes."""
        return self._zero / max(self._zero + int(self._rows.sum()), 1)

    @property
    def bins(self) -> list[WeightBin]:
        """Bins in ascending order: those with rows and those around 1; empty if all weights are 0."""
        used = np.flatnonzero(self._rows)
        if not len(used):
            return []
        rows, weight = self._zero + self._rows.sum(), self._weight.sum()
        first, last = (int(np.searchsorted(EDGES, end * (1 - 1e-9))) for end in _AROUND_ONE)
        return [
            WeightBin(
                float(EDGES[i]), float(EDGES[i + 1]), float(self._rows[i] / rows), float(self._weight[i] / weight)
            )
            for i in range(min(used[0], first), max(used[-1] + 1, last))
        ]


class HasWeights(Protocol):
    """The columns of `Terms` that diagnostics need."""

    @property
    def weight(self) -> Values:
        """Importance weights, float64[N]."""

    @property
    def missing(self) -> Values:
        """The target's probability of eligible actions that the log never took, float64[N]."""


class Diagnostics(msgspec.Struct, frozen=True, kw_only=True):
    """Diagnostics of importance weights.

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
    effective = total**2 / float(np.square(weights).sum()) if total else 0.0
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
    )


def trust(diagnostics: Diagnostics) -> Trust:
    """Whether an estimate with these weights is reliable; of several doubts, the gravest."""
    rows, effective = f"{diagnostics.rows:,}", f"{diagnostics.effective:,.0f}"
    worth = f"The {rows} logged rows say as much about this policy as {effective} rows of its own would"
    good = Trust("good", f"{worth}.")
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
    if d.effective < ENOUGH:
        yield Trust("caution", f"{worth}, so the interval is rough.", _MORE)


def _off(d: Diagnostics) -> str:
    """What a wrong mean weight means. Too low a mean also results when rare, heavy rows happen not to be logged."""
    expected = 1 - d.unsupported
    rare = ", or actions that the policy takes are all but absent from the log" if d.mean_weight < expected else ""
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


def with_training_overlap(found: Trust, learnt: int, rows: int) -> Trust:
    """The verdict on a policy that was trained on some of the rows, which flatter it."""
    if found.grade != "good" or learnt <= LEARNT_CAUTION * rows:
        return found
    of = "all" if learnt == rows else f"{learnt:,}"
    return Trust("caution", f"This policy has learnt from {of} of these decisions. {LOOKS_BETTER}", UNSEEN)


def is_training_overlap(found: Trust) -> bool:
    """Whether the verdict is a caution for training overlap."""
    return found.advice == UNSEEN
