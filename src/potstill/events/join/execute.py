"""Execution of a cut: its decisions in time slices, each with its rewards.

Any process can join a slice and write its observations; then all files are added in one commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import numpy as np
import polars as pl
from deltalake.transaction import AddAction
from numpy.typing import NDArray

from potstill.events.join.changes import BEGINNING, END, CutInputs, all_rows, rows_of_cut, unjoined
from potstill.events.join.cuts import WRITER
from potstill.events.join.dedup import Duplicates, Index, Partition, find_duplicates, partitions
from potstill.events.join.report import JoinCounts, JoinReport
from potstill.events.join.rewards import attach_rewards, count_unused_rewards
from potstill.events.lake import add_files, write_files
from potstill.events.records import DECISION_COLUMNS
from potstill.parallel import Map
from potstill.tables import context_schema, decision_fits, reward_fits

if TYPE_CHECKING:
    from potstill.events.join.cuts import Cut
    from potstill.events.lake import Lake

#: Decisions and rewards in a partition; each needs 50 bytes of memory.
PARTITION = 10_000_000
#: Time marks per slice: each partition can misplace the ends of a slice by one mark.
MARKS = 100


#: Decisions in a slice.
SLICE = 125_000
#: Called with the number of decisions done and the total.
Progress = Callable[[int, int], None]
#: Source of an observation: the mode of its decision, or the log.
_SOURCE = pl.col("mode").fill_null("log").alias("source")
#: Columns of decisions that observations have too.
_TAKEN: tuple[str | pl.Expr, ...] = (
    *(name for name, column in DECISION_COLUMNS.items() if column.observed),
    "problem",
    _SOURCE,
)


class CutPlan(NamedTuple):
    """Plan of a cut: what has to be known before its slices are joined.

    Attributes:
        copies: The ids that stand more than once.
        counts: Copies, and rewards that count for no observation.
        slices: Pieces of time ``(after, to]`` with about as many decisions each, which are all of them.
    """

    copies: Duplicates
    counts: JoinCounts
    slices: list[tuple[int, int]]


class PartitionSummary(NamedTuple):
    """Duplicates and counts of a partition, and the time of every n-th decision (`marks`)."""

    copies: Duplicates
    counts: JoinCounts
    marks: NDArray[np.int64]


def plan_cut(sources: CutInputs, decisions: int, slice_rows: int, each: Map) -> CutPlan:
    """Scan the rows of a cut and plan its slices.

    Args:
        sources: The rows.
        decisions: Number of decisions that the cut joins.
        slice_rows: Number of decisions in a slice.
        each: Maps over partitions.
    """
    count = 1 + (decisions + sources.taken_rewards.count()) // PARTITION
    every = max(slice_rows // MARKS, 1)
    found: list[PartitionSummary] = list(each(summarize_partition, partitions(count), sources, every))
    return CutPlan(
        Duplicates.all(part.copies for part in found),
        sum((part.counts for part in found), JoinCounts()),
        _slices(np.sort(np.concatenate([part.marks for part in found])), slice_rows // every),
    )


def summarize_partition(partition: Partition, sources: CutInputs, every: int) -> PartitionSummary:
    """Scan one partition of the ids."""
    partition.check()
    index = Index.of(partition.rows(sources.decisions.scan()))
    strays = count_unused_rewards(sources, partition, index)
    copies = find_duplicates(sources, partition, index)
    counts = JoinCounts(
        duplicates=copies.duplicates, conflicting=copies.conflicting, ambiguous=copies.ambiguous, rewards=strays
    )
    return PartitionSummary(copies, counts, index.every(every))


def _slices(marks: NDArray[np.int64], of: int) -> list[tuple[int, int]]:
    """Time ranges with `of` marks each; rows of equal time stay together."""
    ends = np.unique(marks[of - 1 : -1 : of]).tolist()
    return list(pairwise([BEGINNING, *ends, END]))


class CutExecution:
    """Execution of one cut, with its counts.

    Args:
        lake: The tables of events; its problem says what fits.
        cut: What to read, and by which rules.
        previous: The complete cut before it.
    """

    def __init__(self, lake: Lake, cut: Cut, previous: Cut | None) -> None:
        self.lake, self.cut, self.previous = lake, cut, previous
        self.rows = rows_of_cut(lake, "decisions", cut, previous)
        self.decisions = self.rows.count()
        self.counts = JoinCounts()

    def make(self, each: Map, on_progress: Progress | None = None) -> bool:
        """Write the observations and add them to their table in one commit.

        Returns:
            False if another process has made this cut, or a later one, and nothing was added.

        Raises:
            Overtaken: An earlier cut was completed meanwhile, which this one does not know.
        """
        lake, number = self.lake, self.cut.number
        missing = (lake.transaction("observations", WRITER) or 0) < number
        if missing:  # find a schema mismatch before the work, not after it
            lake.prepare("observations")
        files = [file for made in self._observe(each, on_progress, write=missing) for file in made.files]
        return missing and add_files(lake, "observations", files, writer=WRITER, number=number, after=self.cut.after)

    def count(self, each: Map) -> None:
        """Count without writing."""
        for _ in self._observe(each, None, write=False):
            pass

    def report(self, seconds: float) -> JoinReport:
        """Report of the counts."""
        previous, decisions = self.previous, all_rows(self.lake, "decisions", self.cut)
        resumes = previous.until if previous and previous.until > self.cut.until else None
        pending = decisions.count(after=self.cut.until if resumes is None else resumes)
        if previous and resumes is not None:
            pending += unjoined(self.lake, self.cut, previous).count()
        return JoinReport(
            **msgspec.structs.asdict(self.counts),
            cut=self.cut.number if self.decisions else None,
            until=self.cut.until,
            pending=pending,
            resumes=resumes,
            seconds=seconds,
        )

    def _observe(self, each: Map, on_progress: Progress | None, write: bool) -> Iterator[SliceResult]:
        if not self.decisions:
            return
        sources = CutInputs.of(self.lake, self.cut, self.previous, self.rows)
        known = plan_cut(sources, self.decisions, SLICE, each)
        self.counts += known.counts
        done = 0
        for made in each(join_slice, known.slices, sources, known.copies, write):
            self.counts += made.counts
            done += made.decisions
            if on_progress is not None:
                on_progress(done, self.decisions)
            yield made


class SliceResult(NamedTuple):
    """Result of a slice.

    Attributes:
        decisions: Number of decisions in the slice.
        counts: How they were counted.
        files: Files with its observations, if they were written.
    """

    decisions: int
    counts: JoinCounts
    files: list[AddAction]


def join_slice(stretch: tuple[int, int], sources: CutInputs, copies: Duplicates, write: bool) -> SliceResult:
    """Join the decisions of a time range ``(after, to]``, and write the observations if `write` is true."""
    final, decisions, counts = observe_slice(stretch, sources, copies)
    return SliceResult(decisions, counts, write_files(sources.lake, "observations", final) if write else [])


def observe_slice(
    stretch: tuple[int, int], sources: CutInputs, copies: Duplicates
) -> tuple[pl.DataFrame, int, JoinCounts]:
    """Observations of a time range ``(after, to]``, the number of its decisions, and how they were counted."""
    problem, cut = sources.lake.problem, sources.cut
    decisions = sources.decisions.scan(*stretch).select(*_TAKEN, *context_schema(problem)).collect()
    fitting = decisions.filter(decision_fits(problem))
    single = copies.without(fitting).sort("time", "id")
    complete, rewards = attach_rewards(single, sources.rewards, cut)
    observed = complete.filter(reward_fits(problem))
    with_reward = int(observed["rewarded"].sum())
    counts = JoinCounts(
        decisions=len(observed),
        rewarded=with_reward,
        defaulted=len(observed) - with_reward,
        unfit=len(decisions) - len(fitting) + len(complete) - len(observed),
        rewards=rewards,
    )
    final = observed.with_columns(weight=pl.lit(1.0), cut=pl.lit(cut.number, pl.Int64))
    return final, len(decisions), counts
