"""What complete cuts made, made again from decisions and rewards: observations of a damaged file, and counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from potstill.events.join.changes import CutInputs, readable
from potstill.events.join.cuts import complete_cuts, previous_cut
from potstill.events.join.execute import SLICE, CutExecution, observe_slice, plan_cut
from potstill.parallel import in_turn
from potstill.tables import moment

if TYPE_CHECKING:
    from potstill.events.join.cuts import Cut
    from potstill.events.join.report import RewardCounts
    from potstill.events.lake import File, Lake
    from potstill.storage import Storage


def rebuild_observations(lake: Lake, cuts: Storage, file: File) -> pl.DataFrame | None:
    """Observations that a damaged file held, by repeating the cuts that can have made them; None if there are none.

    Cuts of an earlier problem, imports, and cuts whose decisions or rewards are gone cannot be repeated.

    Args:
        lake: The tables of events, without the damaged file.
        cuts: The folder of cuts.
        file: The damaged file.
    """
    made = [cut for cut in complete_cuts(lake, cuts) if _can_be_repeated(lake, cut) and cut.until >= file.first]
    within = pl.col("time").is_between(moment(file.first), moment(file.last)), pl.col("time").dt.date() == file.day
    frames = [frame.filter(*within) for cut in reversed(made) for frame in _repeat(lake, cuts, cut, file)]
    if not frames:
        return None
    others = lake.scan("observations", days=[file.day]).select("id", "cut").collect()
    # An id of this file is unknown to the later cuts that are repeated: the first cut with it is the one that counts.
    found = pl.concat(frames).unique("id", keep="first", maintain_order=True).join(others, on=["id"], how="anti")
    return found if len(found) else None


def recount_rewards(lake: Lake, cuts: Storage, cut: Cut) -> RewardCounts | None:
    """Counts of the rewards of a complete cut; None if it cannot be repeated."""
    if not _can_be_repeated(lake, cut):
        return None
    execution = CutExecution(lake, cut, previous_cut(cuts, cut.after))
    execution.count(in_turn)
    return execution.counts.rewards


def _repeat(lake: Lake, cuts: Storage, cut: Cut, file: File) -> list[pl.DataFrame]:
    """Observations of the slices of a cut that can have rows of a file."""
    execution = CutExecution(lake, cut, previous_cut(cuts, cut.after))
    if not execution.decisions:
        return []
    sources = CutInputs.of(lake, cut, execution.previous, execution.rows)
    known = plan_cut(sources, execution.decisions, SLICE, in_turn)
    near = [stretch for stretch in known.slices if stretch[0] <= file.last and stretch[1] >= file.first]
    return [observe_slice(stretch, sources, known.copies)[0] for stretch in near]


def _can_be_repeated(lake: Lake, cut: Cut) -> bool:
    return (
        cut.kind == "join"
        and cut.problem == lake.problem.hash
        and readable(lake, "decisions", cut)
        and readable(lake, "rewards", cut)
    )
