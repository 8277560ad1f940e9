"""What is known of a stretch of time, one cell for each table; cells add up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from potstill.summaries.sums import Sums, Weighted

V = TypeVar("V")
#: Actions with a line of their own; the others are counted together.
ACTIONS = 50
OTHERS = "(others)"
#: Name of the mode in which the policy decides; the log has null for it.
ONLINE = "online"


class Cell(Protocol):
    """A summary of some rows."""

    def __add__(self, other: Any) -> Any:
        """The summary of the rows of both."""


class DecisionCell(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Decisions of a stretch of time.

    Attributes:
        decisions: Number of rows in the log; repeats count.
        modes: Numbers by mode; ``online`` if the policy decided.
        arms: Numbers by arm of an experiment.
        actions: Numbers by action; of a number, by tenth of its scale.
        compared: Number that state what the policy would have done: mode apprentice.
        agreed: Number of those in which it is what was done.
    """

    decisions: int = 0
    modes: dict[str, int] = {}
    arms: dict[str, int] = {}
    actions: dict[str, int] = {}
    compared: int = 0
    agreed: int = 0

    def __add__(self, other: DecisionCell) -> DecisionCell:
        return DecisionCell(
            decisions=self.decisions + other.decisions,
            modes=merged(self.modes, other.modes),
            arms=merged(self.arms, other.arms),
            actions=merged(self.actions, other.actions),
            compared=self.compared + other.compared,
            agreed=self.agreed + other.agreed,
        )


class RewardCell(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rewards as they arrived, by the time that they state; repeats count."""

    rewards: Sums = Sums()

    def __add__(self, other: RewardCell) -> RewardCell:
        return RewardCell(rewards=self.rewards + other.rewards)


class ObservationCell(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Decisions of a stretch of time that are joined with their rewards.

    Attributes:
        rewarded: Number with a reward; the others have the default.
        sources: Rewards by source: ``log`` if the policy decided, else the mode, or an import.
        arms: Rewards by arm of an experiment.
        actions: Rewards by action.
        exact: Rewards of the rows whose propensities are known: those of off-policy estimates.
        uniform: Their weighted sums for uniformly random actions.
        always: Likewise for always the same action, by action.
    """

    rewarded: int = 0
    sources: dict[str, Sums] = {}
    arms: dict[str, Sums] = {}
    actions: dict[str, Sums] = {}
    exact: Sums = Sums()
    uniform: Weighted = Weighted()
    always: dict[str, Weighted] = {}

    def __add__(self, other: ObservationCell) -> ObservationCell:
        return ObservationCell(
            rewarded=self.rewarded + other.rewarded,
            sources=merged(self.sources, other.sources),
            arms=merged(self.arms, other.arms),
            actions=merged(self.actions, other.actions),
            exact=self.exact + other.exact,
            uniform=self.uniform + other.uniform,
            always=merged(self.always, other.always),
        )

    @property
    def joined(self) -> Sums:
        """Rewards of all rows."""
        return sum(self.sources.values(), Sums())


def merged(one: Mapping[Any, V], other: Mapping[Any, V]) -> dict[Any, V]:
    """Two mappings as one; values of keys that both have are added."""
    if not other:
        return dict(one)
    both = dict(one)
    for key, value in other.items():
        both[key] = both[key] + value if key in both else value
    return both
