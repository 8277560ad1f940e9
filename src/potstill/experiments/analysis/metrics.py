"""Effects on metrics: each outcome per decision and per unit, with CUPED where pre-experiment data exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.experiments.analysis import text
from potstill.experiments.analysis.breakdowns import Day, Segments, by_day, by_segment
from potstill.experiments.analysis.cuped import covariates
from potstill.experiments.analysis.effects import Effect, Measured, effect
from potstill.experiments.analysis.units import DECISIONS, REWARD, Arms, Units

Per = Literal["decision", "unit"]


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """The effect on one metric.

    Attributes:
        outcome: ``reward``, ``decisions``, or the name of a metric that was sent with rewards.
        per: Whether the metric is per decision or per unit.
        measured: The effect; None if it cannot be estimated.
        why_not: Reason if `measured` is None.
        adjusted: Whether `measured` is adjusted by pre-experiment data (CUPED).
        plain: The unadjusted effect; equal to `measured` without an adjustment.
        variance_reduction: Share of the variance removed by CUPED, slightly below 0 if the covariates explain nothing;
            None without an adjustment.
        sent: Share of decisions that the metric was sent with, by arm; None for other outcomes.
    """

    outcome: str
    per: Per
    measured: Measured | None = None
    why_not: str = ""
    adjusted: bool = False
    plain: Measured | None = None
    variance_reduction: float | None = None
    sent: Arms[float] | None = None

    @property
    def name(self) -> str:
        """Name of the metric, such as ``reward per decision``."""
        return f"{self.outcome} per {self.per}"


class Table:
    """Effects on several outcomes of the same units.

    Args:
        units: Totals of each unit.
        level: Confidence level of each interval.
        planned: Number of units at which the anytime-valid intervals are narrowest.
    """

    def __init__(self, units: Units, level: float, planned: int) -> None:
        self._units, self._level, self._planned = units, level, planned

    def metrics(self, outcomes: Sequence[str], per: Per) -> list[Metric]:
        """Each outcome in the given denominator, then in the other one; last, decisions per unit."""
        other: Per = "unit" if per == "decision" else "decision"
        return [*(self._metric(name, one) for name in outcomes for one in (per, other)), self._decisions()]

    def days(self, outcome: str, per: Per) -> list[Day]:
        """The cumulative effect on one metric by day; empty if the outcome has no daily data."""
        if outcome not in self._units.daily:
            return []
        units = self._units
        return by_day(
            units.treated,
            units.daily[outcome],
            self._past(outcome, per),
            per_decision=per == "decision",
            level=self._level,
            planned=self._planned,
        )

    def segments(self, by: str, outcome: str, per: Per) -> Segments | None:
        """The effect on one metric by segment; None without segments."""
        units, past = self._units, self._past(outcome, per)
        if units.segment is None:
            return None
        return by_segment(
            by, units.segment, units.treated, lambda chosen: self._effect(outcome, per, past, chosen), self._level
        )

    def _metric(self, outcome: str, per: Per) -> Metric:
        past = self._past(outcome, per)
        plain = self._effect(outcome, per, None)
        adjusted = None if past is None else self._effect(outcome, per, past)
        why_not = self._why_not(outcome)
        if plain is None or why_not:
            return Metric(outcome=outcome, per=per, why_not=why_not or "it does not vary between units")
        return Metric(
            outcome=outcome,
            per=per,
            measured=self._measured(adjusted or plain),
            adjusted=adjusted is not None,
            plain=self._measured(plain),
            variance_reduction=1 - (adjusted.error / plain.error) ** 2 if adjusted else None,
            sent=self._sent(outcome),
        )

    def _decisions(self) -> Metric:
        found = effect(self._units.treated, self._units.decisions, None)
        if found is None:
            why_not = self._why_not(REWARD) or "all units have the same number of decisions"
            return Metric(outcome=DECISIONS, per="unit", why_not=why_not)
        measured = self._measured(found)
        return Metric(outcome=DECISIONS, per="unit", measured=measured, plain=measured)

    def _effect(
        self, outcome: str, per: Per, past: NDArray[np.float64] | None, chosen: NDArray[np.bool_] | None = None
    ) -> Effect | None:
        units = self._units
        rows = np.ones(units.units, np.bool_) if chosen is None else chosen
        size = units.decisions[rows] if per == "decision" else None
        return effect(units.treated[rows], units.outcomes[outcome][rows], size, None if past is None else past[rows])

    def _measured(self, found: Effect) -> Measured:
        return Measured.of(found, self._level, self._planned)

    def _past(self, outcome: str, per: Per) -> NDArray[np.float64] | None:
        return covariates(self._units.before, outcome, per_decision=per == "decision")

    def _sent(self, outcome: str) -> Arms[float] | None:
        if outcome not in self._units.sent:
            return None
        sent, decisions, treated = self._units.sent[outcome], self._units.decisions, self._units.treated
        return Arms(*(float(sent[arm].sum() / decisions[arm].sum()) for arm in (~treated, treated)))

    def _why_not(self, outcome: str) -> str:
        for treated, arm in ((False, "control"), (True, "treatment")):
            count = self._units.count(treated)
            if count < 2:
                return f"{arm} has {text.counted(count, 'unit') if count else 'no units'}, and each arm needs two"
            sent = self._units.sent.get(outcome)
            if sent is not None and not sent[self._units.treated == treated].any():
                return f"{outcome} was never sent in {arm}"
        return ""
