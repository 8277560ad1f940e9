"""What a join counts, so that every row is accounted for; parts of it are counted apart and added."""

from __future__ import annotations

from typing import Any

import msgspec


class RewardCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the rewards.

    The first three are of the decisions that the cut observed; the others of the rewards that it took up: those with a
    time up to its `until` that no earlier cut took up, and for `too_late` those that arrived since the last cut.

    Attributes:
        matched: in the window of their decision, each counted once.
        duplicates: the same key and value again; without a key, the same time and value again.
        conflicting: the same key again with another value; the first by time counts, then the smaller.
        late: after the window of their decision.
        too_late: in the window, but they arrived when their decision had been observed without them.
        orphans: without a decision, as far as a window and a day before them and a minute after them.
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
    """What became of the decisions and rewards that a cut took up.

    Attributes:
        decisions: observations made, one for each decision.
        rewarded: those for which a reward came.
        defaulted: those that got the default reward.
        duplicates: decisions that say again what another one of the same id says.
        conflicting: decisions that say something else than the one of the same id that counts.
        unfit: decisions that do not fit the problem, or whose reward does not.
        rewards: what became of the rewards.
    """

    decisions: int = 0
    rewarded: int = 0
    defaulted: int = 0
    duplicates: int = 0
    conflicting: int = 0
    unfit: int = 0
    rewards: RewardCounts = RewardCounts()

    def __add__(self, other: JoinCounts) -> JoinCounts:
        return JoinCounts(**_sums(JoinCounts, self, other))


class JoinReport(JoinCounts, frozen=True, kw_only=True):
    """What a join did, or would do: its counts, and these.

    Attributes:
        cut: its number; None if no decision was final and nothing was done.
        until: decisions up to this time were taken up; microseconds since 1970, UTC.
        pending: decisions in the lake that are not final yet, copies included.
        seconds: how long it took.
    """

    cut: int | None
    until: int
    pending: int
    seconds: float


def _sums(kind: type[msgspec.Struct], one: Any, other: Any) -> dict[str, Any]:
    return {name: getattr(one, name) + getattr(other, name) for name in kind.__struct_fields__}
