"""Rewards that count for no observation: after the window, after the cut, or without a decision."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.events.arrivals import BEGINNING, END, Part, Rows, all_rows, arrived, taken_up
from potstill.events.copies import Index, hashed
from potstill.events.rewards import SECOND, SKEW, RewardCounts
from potstill.events.schema import TIME

if TYPE_CHECKING:
    from potstill.events.cuts import Cut
    from potstill.events.lake import Lake

DAY = 86_400 * SECOND
#: How long a reward came after the decision beside it.
_delay = (pl.col("time") - pl.col("decided")).dt.total_microseconds()


def count_strays(lake: Lake, cut: Cut, previous: Cut | None, decisions: Index, counts: RewardCounts) -> None:
    """Count the rewards that a cut takes up and cannot use; see `RewardCounts` for which is which.

    Args:
        lake: the tables.
        cut: the cut.
        previous: the complete cut before it.
        decisions: those that the cut takes up.
        counts: where to add `late`, `too_late` and `orphans`.
    """
    window = cut.window * SECOND
    rewards = taken_up(lake, "rewards", cut, previous)
    if previous is not None and not rewards.exact:  # those that came late cannot be told from those that were used
        rewards = Rows(lake, "rewards", [Part(rewards.parts[0].files, previous.until, cut.until)])
    unknown = _judged_by_decisions(rewards, decisions, window, counts)
    strange = _with_hashes(rewards, unknown)
    known = pl.concat([_observed(lake, cut, strange.lazy(), window + DAY), _pending(lake, cut)])
    _judged_by_known(strange, known, window, counts)
    if previous is not None:
        counts.too_late += _too_late(lake, cut, previous, window)


def _judged_by_decisions(rewards: Rows, decisions: Index, window: int, counts: RewardCounts) -> NDArray[np.uint64]:
    """Count those whose decision the cut takes up; gives the hashes of the others."""
    taken = Index.of(rewards)
    hashes, first = decisions.first_times()
    place = np.minimum(np.searchsorted(hashes, taken.hashes), len(hashes) - 1)
    mine = hashes[place] == taken.hashes
    after = taken.times[mine] - first[place[mine]]
    counts.late += int((after > window).sum())
    counts.orphans += int((after < -SKEW).sum())
    return np.unique(taken.hashes[~mine])


def _with_hashes(rewards: Rows, hashes: NDArray[np.uint64]) -> pl.DataFrame:
    wanted = pl.LazyFrame({"hash": hashes})
    found = hashed(rewards.scan().select("id", "time")).join(wanted, on="hash", how="semi")
    return found.drop("hash").collect(engine="streaming")


def _judged_by_known(rewards: pl.DataFrame, known: pl.DataFrame, window: int, counts: RewardCounts) -> None:
    """Count those after the window of a decision, and those without one."""
    pairs = rewards.with_row_index("row").join(known, on="id").filter(_delay >= -SKEW, _delay <= window + DAY)
    after = pairs.group_by("row").agg(_delay.max().alias("after"))["after"]
    counts.late += int((after > window).sum())
    counts.orphans += len(rewards) - len(after)


def _too_late(lake: Lake, cut: Cut, previous: Cut, window: int) -> int:
    """How many rewards arrived since the last cut for decisions that had been observed by then."""
    files = arrived(lake, "rewards", cut, previous)
    if files is None:
        return 0
    rewards = Rows(lake, "rewards", [Part(files, BEGINNING, END)]).scan().select("id", "time").with_row_index("row")
    observed = _observed(lake, cut, rewards, window).lazy()
    pairs = rewards.join(observed, on="id").filter(_delay >= -SKEW, _delay <= window)
    return int(pairs.select(pl.col("row").n_unique()).collect(engine="streaming").item())


def _observed(lake: Lake, cut: Cut, rewards: pl.LazyFrame, back: int) -> pl.DataFrame:
    """The decisions that earlier cuts observed, of the ids of some rewards and up to so long before them."""
    times = rewards.select("time").collect(engine="streaming")["time"]
    days = {day - dt.timedelta(days=step) for day in times.dt.date().unique() for step in range(-1, back // DAY + 2)}
    observed = lake.scan("observations", days=days).filter(
        pl.col("cut") < cut.number,
        pl.col("time") >= pl.lit(times.min(), TIME) - pl.duration(microseconds=back),
        pl.col("time") <= pl.lit(times.max(), TIME) + pl.duration(microseconds=SKEW),
    )
    wanted = rewards.select("id")
    return observed.select("id", decided="time").join(wanted, on="id", how="semi").collect(engine="streaming")


def _pending(lake: Lake, cut: Cut) -> pl.DataFrame:
    """The decisions that are not final and can have rewards that are."""
    rows = all_rows(lake, "decisions", cut).scan(cut.until, cut.until + SKEW)
    return rows.select("id", decided="time").collect(engine="streaming")
