"""Making a cut: its decisions in slices of time, each with its rewards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec
import polars as pl

from potstill.events.arrivals import END, all_rows, taken_up
from potstill.events.copies import Copies, Index, find_copies
from potstill.events.fit import decision_fits, reward_fits
from potstill.events.rewards import RewardCounts, rewarded
from potstill.events.schema import context_schema
from potstill.events.strays import count_strays

if TYPE_CHECKING:
    from potstill.events.cuts import Cut
    from potstill.events.lake import Lake

#: Decisions that are in memory at a time.
SLICE = 125_000
#: Observations that are handed on at a time; a table's writer holds several such batches.
BATCH = 25_000
#: Called with the decisions that are done, and how many there are.
Progress = Callable[[int, int], None]
#: Observations come from the log, or from how its decision came about.
_SOURCE = pl.col("mode").fill_null("log").alias("source")
_TAKEN = ("id", "time", "action", "propensity", "policy", "eligible", "unit", "arm", "problem", _SOURCE)


class JoinReport(msgspec.Struct, kw_only=True):
    """What a join did, or would do.

    Attributes:
        cut: its number; None if no decision was final and nothing was done.
        until: decisions up to this time were taken up; microseconds since 1970, UTC.
        decisions: observations made, one for each decision.
        rewarded: those for which a reward came.
        defaulted: those that got the default reward.
        pending: decisions in the lake that are not final yet, copies included.
        duplicates: decisions that say again what another one of the same id says.
        conflicting: decisions that say something else than the one of the same id that counts.
        unfit: decisions that do not fit the problem, or whose reward does not.
        rewards: what became of the rewards.
        seconds: how long it took.
    """

    cut: int | None = None
    until: int
    decisions: int = 0
    rewarded: int = 0
    defaulted: int = 0
    pending: int = 0
    duplicates: int = 0
    conflicting: int = 0
    unfit: int = 0
    rewards: RewardCounts = msgspec.field(default_factory=RewardCounts)
    seconds: float = 0.0


class Making:
    """The observations of one cut; what is found on the way is counted.

    Args:
        lake: the tables of events; its problem says what fits.
        cut: what to read, and by which rules.
        previous: the complete cut before it.
    """

    def __init__(self, lake: Lake, cut: Cut, previous: Cut | None) -> None:
        self.lake, self.cut, self.previous = lake, cut, previous
        self.rows = taken_up(lake, "decisions", cut, previous)
        self.rewards = all_rows(lake, "rewards", cut)
        self.counts = JoinReport(until=cut.until)
        self._index: Index | None = Index.of(self.rows)
        self.decisions = len(self._index)

    def observations(self, on_progress: Progress | None = None) -> Iterator[pl.DataFrame]:
        """The observations, sorted by time and id, in batches; once."""
        if not self.decisions or self._index is None:
            return
        copies, stretches = self._look_over(self._index)
        self._index = None  # so large that the memory is wanted
        done = 0
        for after, to in stretches:
            decisions = self.rows.scan(after, to).select(*_TAKEN, *context_schema(self.lake.problem)).collect()
            done += len(decisions)
            yield from self._observed(decisions, copies).iter_slices(BATCH)
            if on_progress is not None:
                on_progress(done, self.decisions)

    def report(self, seconds: float) -> JoinReport:
        """What was counted."""
        counts = self.counts
        counts.cut = self.cut.number if self.decisions else None
        reached = max(self.cut.until, self.previous.until) if self.previous else self.cut.until
        counts.pending = all_rows(self.lake, "decisions", self.cut).count(reached, END)
        counts.seconds = seconds
        return counts

    def _look_over(self, index: Index) -> tuple[Copies, list[tuple[int, int]]]:
        """What can be said only of all decisions together, and the times at which to slice them."""
        count_strays(self.lake, self.cut, self.previous, index, self.counts.rewards)
        copies = find_copies(self.lake, self.rows, index, self.cut.number)
        self.counts.duplicates, self.counts.conflicting = copies.duplicates, copies.conflicting
        return copies, index.stretches(SLICE)

    def _observed(self, decisions: pl.DataFrame, copies: Copies) -> pl.DataFrame:
        problem, counts = self.lake.problem, self.counts
        fitting = decisions.filter(decision_fits(problem))
        single = copies.without(fitting).sort("time", "id")
        complete = rewarded(single, self.rewards, self.cut, counts.rewards)
        observed = complete.filter(reward_fits(problem))
        counts.unfit += len(decisions) - len(fitting) + len(complete) - len(observed)
        counts.decisions += len(observed)
        counts.rewarded += int(observed["rewarded"].sum())
        counts.defaulted = counts.decisions - counts.rewarded
        return observed.with_columns(weight=pl.lit(1.0), cut=pl.lit(self.cut.number, pl.Int64))
