"""Results of the demo: one row per batch, and totals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from potstill.distill import Fidelity
from potstill.lab.demo.demo import ALGORITHMS, Batch, Demo, Timing


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One batch.

    Attributes:
        batch: Number of the batch, from 1.
        decisions: Number of decisions up to the end of the batch.
        reward: Mean reward in the batch, by algorithm.
        fidelity: Fidelity of the policy distilled after the batch.
        timing: Timing of that policy.
    """

    batch: int
    decisions: int
    reward: dict[str, float]
    fidelity: Fidelity
    timing: Timing

    @classmethod
    def of(cls, batch: Batch) -> Row:
        """The figures of a batch."""
        return cls(
            batch=batch.number,
            decisions=batch.decisions,
            reward=mean_reward([batch]),
            fidelity=batch.report.fidelity,
            timing=batch.timing,
        )


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run.

    Attributes:
        settings: Settings of the run.
        reward: Mean reward over all decisions, by algorithm.
        late_reward: Mean reward over the last quarter of the batches, by algorithm.
        regret: Total expected reward lost against the best actions, by algorithm.
        rows: The batches.
    """

    settings: Demo
    reward: dict[str, float]
    late_reward: dict[str, float]
    regret: dict[str, float]
    rows: list[Row]

    @classmethod
    def of(cls, settings: Demo, batches: Sequence[Batch]) -> Results:
        """The figures of a run."""
        return cls(
            settings=settings,
            reward=mean_reward(batches),
            late_reward=mean_reward(batches[-max(len(batches) // 4, 1) :]),
            regret={name: float(sum(b.outcomes[name].regrets.sum() for b in batches)) for name in ALGORITHMS},
            rows=[Row.of(batch) for batch in batches],
        )

    @property
    def late_share(self) -> dict[str, float]:
        """Reward at the end as a share of the best possible, by algorithm."""
        return {name: ratio(reward, self.late_reward["best"]) for name, reward in self.late_reward.items()}

    @property
    def gap_closed(self) -> float:
        """Final position of the policy between uniform (0) and the best possible (1)."""
        late = self.late_reward
        return ratio(late["potstill"] - late["uniform"], late["best"] - late["uniform"])

    @property
    def regret_ratio(self) -> float:
        """Regret of the distilled policies over that of undistilled Thompson sampling."""
        return ratio(self.regret["potstill"], self.regret["thompson"])

    @property
    def decide_us(self) -> float:
        """Median microseconds per decision of the distilled policies."""
        return float(np.median([row.timing.decide_us for row in self.rows]))

    @property
    def sample_us(self) -> float:
        """Median microseconds per decision of undistilled Thompson sampling."""
        return float(np.median([row.timing.sample_us for row in self.rows]))


def microseconds(us: float) -> str:
    """A time as text with two digits; further ones vary between runs."""
    return f"{us:.1f} µs" if us < 10 else f"{us:.0f} µs"


def ratio(numerator: float, denominator: float) -> float:
    """A quotient; NaN if the divisor is 0, as in very short runs."""
    return numerator / denominator if denominator else math.nan


def mean_reward(batches: Sequence[Batch]) -> dict[str, float]:
    """Mean reward per decision over some batches, by algorithm."""
    return {name: float(np.concatenate([b.outcomes[name].rewards for b in batches]).mean()) for name in ALGORITHMS}
