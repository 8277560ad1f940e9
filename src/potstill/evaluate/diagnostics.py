"""Whether an off-policy estimate can be trusted: what its weights look like, and one sentence about them."""

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

#: Bins: four to the factor of ten. Weights beyond the ends are counted in the outermost ones.
EDGES = 10.0 ** np.arange(-4, 6.01, 0.25)
#: Bins that are there also without rows, so that small weights are told from large ones at a glance.
_AROUND_ONE = (0.1, 10.0)


Values = NDArray[np.float64]
Grade = Literal["good", "caution", "no"]
# Thresholds. Weights are a target's probability over the propensity; rows that count nothing have weight 0.
#: Effective rows below which the estimate is a guess. With skewed weights, normal intervals of nominal 95 % cover 91 %
#: with 30 effective rows, and 94 % with 100 (`benchmarks/coverage.py`).
FEW = 100
#: Effective rows from which normal intervals are right: they cover 95 % in the same benchmark, with room for more skew.
ENOUGH = 1_000
#: Share of the target's probability on actions that were never logged, above which the reader has to know: the value
#: may be off by the same share of the reward's range, which is as much as many an improvement.
UNSUPPORTED_CAUTION = 0.01
#: ... and above which the number says too little about the target.
UNSUPPORTED_NO = 0.10
#: Share of all weight in the largest 1 % of the weights, above which so few rows decide that the effective rows may be
#: overstated: rows as heavy that did not happen to be logged are not in the sum. Equal weights have 1 %.
FEW_ROWS = 0.50
#: Standard errors by which the mean weight may be away from 1. By luck it is in 1 of 16,000 logs.
MEAN_WEIGHT_ERRORS = 4.0
#: ... and how far it must be away to matter: 2 % of the value.
MEAN_WEIGHT_GAP = 0.02
_MORE = "Log more rows, serve with a higher floor, or evaluate a policy nearer to the one that served."
_NEARER = "Serve with a floor, so that every action is tried, or evaluate a policy nearer to the one that served."
_RIGHT = "Check that each row has the probability with which its action was drawn, and that no rows were left out."
#: Share of the rows that a policy has learnt from, above which its estimate rests on them more than on others.
LEARNT_CAUTION = 0.5
_REPLAY = "the log's actions were not uniformly random, so replay is biased"
_MODEL = "the intervals leave out how wrong the reward model is"
_OTHERS = "Let another estimator speak, such as dr or snips."
#: Said of policies that have learnt from rows of the log, and what to do about it.
LOOKS_BETTER = "A policy looks a little better on what it has learnt from than it is."
UNSEEN = "--unseen takes later decisions only."


class WeightBin(NamedTuple):
    """Rows of similar weight.

    Attributes:
        low: the smallest weight.
        high: the largest.
        rows: share of all rows.
        weight: share of the total weight.
    """

    low: float
    high: float
    rows: float
    weight: float


class WeightHistogram:
    """A target that counts its weights: the probability of each logged action over its propensity.

    Rows are counted as they go by, so a log must be gone through once with it.
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
        """From small weights to large ones: where there are rows, and about 1; empty if all weights are 0."""
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
    """What `Terms` have, and all that is needed here."""

    @property
    def weight(self) -> Values:
        """The target's probability of the logged action over its propensity, float64[N]."""

    @property
    def missing(self) -> Values:
        """The target's probability on eligible actions that the log never took, float64[N]."""


class Diagnostics(msgspec.Struct, frozen=True, kw_only=True):
    """What the weights of an estimate look like.

    Attributes:
        rows: logged rows.
        effective: how many rows of equal weight would be as good, (Σw)² / Σw².
        effective_share: of the rows.
        largest: the largest weight.
        largest_share: its part in the total weight.
        top_share: the part of the largest 1 % of the weights above 0 (at least one) in the total weight.
        unsupported: the average probability that the target puts on eligible actions that were never logged.
        mean_weight: 1 less the unsupported part, up to luck, if the logged propensities are right.
        mean_weight_error: its standard error.
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
        """Whether the mean weight is too far from what right propensities would give for luck to explain it."""
        gap = abs(self.mean_weight - (1 - self.unsupported))
        return gap > MEAN_WEIGHT_GAP and gap > MEAN_WEIGHT_ERRORS * self.mean_weight_error


class Trust(msgspec.Struct, frozen=True):
    """A verdict on an estimate.

    Attributes:
        grade: `good`, `caution` or `no`.
        sentence: why, in plain words.
        advice: what to do about it; empty if nothing has to be done.
    """

    grade: Grade
    sentence: str
    advice: str = ""


def diagnose(terms: HasWeights) -> Diagnostics:
    """What the weights look like; everything is 0 for a log without rows."""
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
    """Whether an estimate with these weights can be relied on; if there are several reasons not to, the gravest."""
    rows, effective = f"{diagnostics.rows:,}", f"{diagnostics.effective:,.0f}"
    worth = f"The {rows} logged rows say as much about this policy as {effective} rows of its own would"
    good = Trust("good", f"{worth}.")
    return min(_doubts(diagnostics, worth), key=lambda doubt: doubt.grade != "no", default=good)


def _doubts(d: Diagnostics, worth: str) -> Iterator[Trust]:
    """Reasons not to trust, in the order in which they should be seen to."""
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
    """What a wrong mean weight means. Too low a one is also what rare rows leave that happen not to be in the log."""
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
    """Why an estimator may be biased on a log, whose actions were `uniform`ly random or not; mostly empty."""
    if estimator == "replay" and not uniform:
        return _REPLAY
    return _MODEL if estimator == "dm" else ""


def with_estimator_note(found: Trust, said: str) -> Trust:
    """The trust in an estimate that has such a note: none in one that is biased, and good in neither."""
    if not said or (found.grade != "good" and said != _REPLAY):
        return found
    return Trust("no" if said == _REPLAY else "caution", f"{said[0].upper()}{said[1:]}.", _OTHERS)


def with_training_overlap(found: Trust, learnt: int, rows: int) -> Trust:
    """The trust in a policy that has learnt from some of the rows: it looks better on them than it is."""
    if found.grade != "good" or learnt <= LEARNT_CAUTION * rows:
        return found
    of = "all" if learnt == rows else f"{learnt:,}"
    return Trust("caution", f"This policy has learnt from {of} of these decisions. {LOOKS_BETTER}", UNSEEN)


def is_training_overlap(found: Trust) -> bool:
    """Whether that is why there is caution."""
    return found.advice == UNSEEN
