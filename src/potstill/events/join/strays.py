"""Rewards that count for no observation: after the window, after the cut, or without a decision."""

from __future__ import annotations

import datetime as dt

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.events.join.ids import HASH, Index, Partition, distinct
from potstill.events.join.report import RewardCounts
from potstill.events.join.rewards import SECOND, SKEW
from potstill.events.join.sources import Sources
from potstill.events.lake.schema import TIME

DAY = 86_400 * SECOND
#: How long a reward came after the decision beside it.
_delay = (pl.col("time") - pl.col("decided")).dt.total_microseconds()


def count_strays(sources: Sources, partition: Partition, decisions: Index) -> RewardCounts:
    """Count the rewards that a cut takes up and cannot use; see `RewardCounts` for which is which.

    Args:
        sources: the rows.
        partition: the ids to look at.
        decisions: those of these ids that the cut takes up.
    """
    window = sources.cut.window * SECOND
    rewards = partition.rows(sources.taken_rewards.scan().select("id", "time"))
    unknown, counts = _judged_by_decisions(Index.of(rewards), decisions, window)
    strange = _with_hashes(rewards, unknown)
    soon = partition.rows(sources.soon.scan().select("id", decided="time")).collect(engine="streaming")
    known = pl.concat([_observed(sources, strange.lazy(), window + DAY), soon])
    arrived = partition.rows(sources.arrived_rewards.scan().select("id", "time"))
    return counts + _judged_by_known(strange, known, window) + _judged_too_late(sources, arrived, window)


def _judged_by_decisions(rewards: Index, decisions: Index, window: int) -> tuple[NDArray[np.uint64], RewardCounts]:
    """Count those whose decision the cut takes up; gives the hashes of the others first."""
    if not len(decisions):
        return distinct(rewards.hashes), RewardCounts()
    hashes, first = decisions.first_times()
    place = np.minimum(np.searchsorted(hashes, rewards.hashes), len(hashes) - 1)
    mine = hashes[place] == rewards.hashes
    after = rewards.times[mine] - first[place[mine]]
    counts = RewardCounts(late=int((after > window).sum()), orphans=int((after < -SKEW).sum()))
    return distinct(rewards.hashes[~mine]), counts


def _with_hashes(rewards: pl.LazyFrame, hashes: NDArray[np.uint64]) -> pl.DataFrame:
    wanted = pl.LazyFrame({"hash": hashes})
    found = rewards.with_columns(HASH).join(wanted, on="hash", how="semi")
    return found.drop("hash").collect(engine="streaming")


def _judged_by_known(rewards: pl.DataFrame, known: pl.DataFrame, window: int) -> RewardCounts:
    """Count those after the window of a decision, and those without one."""
    pairs = rewards.with_row_index("row").join(known, on="id").filter(_delay >= -SKEW, _delay <= window + DAY)
    after = pairs.group_by("row").agg(_delay.max().alias("after"))["after"]
    return RewardCounts(late=int((after > window).sum()), orphans=len(rewards) - len(after))


def _judged_too_late(sources: Sources, rewards: pl.LazyFrame, window: int) -> RewardCounts:
    """Count those that have arrived since the last cut, for decisions that had been observed by then."""
    numbered = rewards.with_row_index("row")
    observed = _observed(sources, numbered, window).lazy()
    pairs = numbered.join(observed, on="id").filter(_delay >= -SKEW, _delay <= window)
    return RewardCounts(too_late=pairs.select(pl.col("row").n_unique()).collect(engine="streaming").item())


def _observed(sources: Sources, rewards: pl.LazyFrame, back: int) -> pl.DataFrame:
    """The decisions that earlier cuts observed, of the ids of some rewards and up to so long before them."""
    times = rewards.select("time").collect(engine="streaming")["time"]
    days = {day - dt.timedelta(days=step) for day in times.dt.date().unique() for step in range(-1, back // DAY + 2)}
    observed = sources.observed(days).filter(
        pl.col("time") >= pl.lit(times.min(), TIME) - pl.duration(microseconds=back),
        pl.col("time") <= pl.lit(times.max(), TIME) + pl.duration(microseconds=SKEW),
    )
    wanted = rewards.select("id")
    return observed.select("id", decided="time").join(wanted, on="id", how="semi").collect(engine="streaming")
