"""Counts of a join, which account for every row; partial counts add up."""

from __future__ import annotations

from typing import Any

import msgspec

from potstill.events.watermarks import in_words


class RewardCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of rewards.

    The first three count rewards of the decisions that the cut joined. The others count rewards timestamped up to its
    `until` that no earlier cut counted; `too_late` counts those that arrived since the last cut.

    Attributes:
        matched: Rewards in the window of their decision, each counted once.
        duplicates: Repeated rewards: the same key and value, or without a key the same time and value.
        conflicting: Rewards with a known key and another value; the first by time counts, then the smaller.
        late: Rewards after the window of their decision.
        too_late: Rewards in the window that arrived after their decision was joined without them.
        orphans: Rewards without a decision from a window and a day before them to a minute after them.
    """

    matched: int = 0
    duplicates: int = 0
    conflicting: int = 0
    late: int = 0
    too_late: int = 0
    orphans: int = 0

    def __add__(self, other: RewardCounts) -> RewardCounts:
        return RewardCounts(**_sums(RewardCounts, self, other))


class JoinCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the decisions and rewards that a cut processed.

    Attributes:
        decisions: Number of observations made, one for each decision.
        rewarded: Number of observations with a reward.
        defaulted: Number of observations with the default reward.
        duplicates: Number of decisions that repeat another one of the same id.
        conflicting: Number of decisions that disagree with the first one of the same id.
        ambiguous: Number of decisions left out because rows of their id differ in action, propensity or policy, so
            that it is not known which was answered; further rows of the id are counted as duplicates or conflicting.
        unfit: Number of decisions that do not fit the problem, or whose reward does not.
        rewards: Counts of the rewards.
    """

    decisions: int = 0
    rewarded: int = 0
    defaulted: int = 0
    duplicates: int = 0
    conflicting: int = 0
    ambiguous: int = 0
    unfit: int = 0
    rewards: RewardCounts = RewardCounts()

    def __add__(self, other: JoinCounts) -> JoinCounts:
        return JoinCounts(**_sums(JoinCounts, self, other))


class JoinReport(JoinCounts, frozen=True, kw_only=True):
    """Report of a join.

    Attributes:
        cut: Number of the cut; None if no decision was final and nothing was done.
        until: Decisions up to this time were joined; microseconds since 1970, UTC.
        pending: Number of decisions in the lake that are not final yet, duplicates included.
        resumes: Time up to which an earlier cut has reached, if that is after `until`: nothing is joined before `until`
            has passed it. None if no earlier cut did.
        seconds: Duration in seconds.
    """

    cut: int | None
    until: int
    pending: int
    resumes: int | None = None
    seconds: float

    @property
    def words(self) -> list[str]:
        """What an operator should know: why the join waits."""
        if self.resumes is None or not self.pending:
            return []
        wait = in_words(self.resumes - self.until)
        return [
            f"{self.pending:,} decisions wait: an earlier cut reaches {wait} further than this one would, because the "
            f"window was made longer, a clock was set back, or a log is behind; they are joined in {wait}"
        ]


def _sums(kind: type[msgspec.Struct], one: Any, other: Any) -> dict[str, Any]:
    return {name: getattr(one, name) + getattr(other, name) for name in kind.__struct_fields__}
