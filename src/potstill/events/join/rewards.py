"""Rewards of decisions: which of them count, and how several are combined."""

from __future__ import annotations

import datetime as dt
import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.events.join.changes import SKEW, CutInputs, Rows
from potstill.events.join.dedup import HASH, Index, Partition, distinct
from potstill.events.join.report import RewardCounts
from potstill.tables import SECOND, TIME

if TYPE_CHECKING:
    from potstill.events.join.cuts import Aggregate, Cut

_COLUMNS = ("id", "time", "reward", "key", "metrics")
#: Order of the rewards of one decision. Null metrics are last.
_ORDER = ("row", "time", "reward", "key", "metrics")


DAY = 86_400 * SECOND
#: Delay of a reward after its decision, in microseconds.
_delay = (pl.col("time") - pl.col("decided")).dt.total_microseconds()
#: Number of a decision among those that are joined.
_ROW = pl.int_range(pl.len(), dtype=pl.UInt32).alias("row")


def attach_rewards(decisions: pl.DataFrame, rewards: Rows, cut: Cut) -> tuple[pl.DataFrame, RewardCounts]:
    """Decisions with distinct ids, sorted by time, with `reward`, `rewarded` (whether one arrived) and `metrics`."""
    found = _in_window(decisions, rewards, cut.window * SECOND)
    several = found.select(pl.col("row").is_duplicated()).to_series()
    single = found.filter(~several).select("row", "reward", "metrics")
    once, counts = _once(found.filter(several))
    amounts = _totals(once.select("row", "reward"), cut.aggregate)
    totals = pl.concat([single, amounts.join(_metrics(once, cut.aggregate), on="row", how="left")])
    rows = decisions.select(_ROW)
    matched = rows.join(totals, on="row", how="left", maintain_order="left").drop("row")
    complete = decisions.hstack(matched).with_columns(
        pl.col("reward").is_not_null().alias("rewarded"), pl.col("reward").fill_null(cut.default)
    )
    return complete, counts + RewardCounts(matched=len(single))


def _in_window(decisions: pl.DataFrame, rewards: Rows, window: int) -> pl.DataFrame:
    """Rewards in the window of their decision, with its `row` in place of the id: integers are compared faster."""
    start, end = (decisions["time"].dt.epoch("us")[place] for place in (0, -1)) if len(decisions) else (0, -window)
    near = rewards.scan(start - SKEW - 1, end + window).select(_COLUMNS)
    pairs = near.join(decisions.lazy().select("id", _ROW, decided="time"), on="id").drop("id")
    return pairs.filter(_delay >= -SKEW, _delay <= window).drop("decided").collect(engine="streaming")


def _once(rewards: pl.DataFrame) -> tuple[pl.DataFrame, RewardCounts]:
    """Deduplicated rewards by row, time and value: equal row and key, or without a key equal row, time and value."""
    rewards = rewards.with_columns(reward=_one_zero("reward"))
    # Duplicates may differ in metrics: the smallest counts, so that the order of files does not matter.
    rewards = rewards.sort(_ORDER, nulls_last=[name == "metrics" for name in _ORDER])
    unnamed = pl.col("key").is_null()
    same: list[str | pl.Expr] = [
        "row",
        "key",
        pl.when(unnamed).then(pl.col("time")),
        pl.when(unnamed).then(pl.col("reward")),
    ]
    marked = rewards.with_columns(
        again=pl.int_range(pl.len()).over(*same) > 0, first=pl.col("reward").first().over(*same)
    )
    again = marked.filter("again")
    conflicting = int((again["reward"] != again["first"]).sum())
    once = marked.filter(~pl.col("again")).select("row", "time", "reward", "metrics")
    return once, RewardCounts(matched=len(once), duplicates=len(again) - conflicting, conflicting=conflicting)


def _metrics(rewards: pl.DataFrame, aggregate: Aggregate) -> pl.DataFrame:
    """Combined metrics of each row, name by name; rows without metrics are left out."""
    some = rewards.filter(pl.col("metrics").list.len() > 0).select("row", "time", "metrics")
    named = some.explode("metrics").unnest("metrics").with_columns(value=_one_zero("value"))
    totals = _totals(named.sort("row", "name", "time", "value").select("row", "name", "value"), aggregate)
    return totals.group_by("row", maintain_order=True).agg(pl.struct("name", "value").alias("metrics"))


def _totals(values: pl.DataFrame, aggregate: Aggregate) -> pl.DataFrame:
    """Combined values of the last column, grouped by the others; rows are in order of time and value."""
    *by, column = values.columns
    lists = values.group_by(by, maintain_order=True).agg(column)
    each = pl.col(column).list
    if aggregate in ("sum", "mean"):
        total = _sums(lists[column])
        total = total / lists[column].list.len() if aggregate == "mean" else total
        return lists.with_columns(total.alias(column))
    return lists.with_columns({"first": each.first(), "last": each.last(), "max": each.max()}[aggregate])


def _one_zero(column: str) -> pl.Expr:
    """A column in which -0.0 is replaced by 0.0."""
    return pl.when(pl.col(column) == 0).then(0.0).otherwise(pl.col(column))


def _sums(lists: pl.Series) -> pl.Series:
    """Correctly rounded sum of each list, independent of the order; a sum of two always is."""
    sums = lists.list.sum().to_numpy(writable=True)
    many = (lists.list.len() > 2).to_numpy()
    sums[many] = [math.fsum(values) for values in lists.filter(many).to_list()]
    return pl.Series(sums)


def count_unused_rewards(sources: CutInputs, partition: Partition, decisions: Index) -> RewardCounts:
    """Count the rewards of a cut that no observation uses, by the kinds of `RewardCounts`.

    Args:
        sources: The rows.
        partition: The ids to look at.
        decisions: Decisions of these ids that the cut joins.
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
    """Hashes of rewards whose decision is not in the cut, and counts of the others."""
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
    """Count rewards after the window of a decision, and rewards without a decision."""
    pairs = rewards.with_row_index("row").join(known, on="id").filter(_delay >= -SKEW, _delay <= window + DAY)
    after = pairs.group_by("row").agg(_delay.max().alias("after"))["after"]
    return RewardCounts(late=int((after > window).sum()), orphans=len(rewards) - len(after))


def _judged_too_late(sources: CutInputs, rewards: pl.LazyFrame, window: int) -> RewardCounts:
    """Count rewards that arrived since the last cut for decisions joined before."""
    numbered = rewards.with_row_index("row")
    observed = _observed(sources, numbered, window).lazy()
    pairs = numbered.join(observed, on="id").filter(_delay >= -SKEW, _delay <= window)
    return RewardCounts(too_late=pairs.select(pl.col("row").n_unique()).collect(engine="streaming").item())


def _observed(sources: CutInputs, rewards: pl.LazyFrame, back: int) -> pl.DataFrame:
    """Decisions that earlier cuts joined, of the ids of some rewards and up to `back` before them."""
    times = rewards.select("time").collect(engine="streaming")["time"]
    days = {day - dt.timedelta(days=step) for day in times.dt.date().unique() for step in range(-1, back // DAY + 2)}
    observed = sources.observed(days).filter(
        pl.col("time") >= pl.lit(times.min(), TIME) - pl.duration(microseconds=back),
        pl.col("time") <= pl.lit(times.max(), TIME) + pl.duration(microseconds=SKEW),
    )
    wanted = rewards.select("id")
    return observed.select("id", decided="time").join(wanted, on="id", how="semi").collect(engine="streaming")
