"""Totals of rewards over all joins, also of those whose update was killed before it could add them.

The totals are written after the observations of a cut. Between the two an update can be killed, and the next one
finds a complete cut that is not in the totals: it is counted again from the events that it joined.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import takewhile
from typing import TYPE_CHECKING

from potstill.events.join.cuts import CorruptCut, complete_cuts
from potstill.events.join.rebuild import recount_rewards
from potstill.events.totals import add_totals, read_totals

if TYPE_CHECKING:
    from potstill.events.join.cuts import Cut
    from potstill.events.join.report import JoinReport
    from potstill.events.lake import Lake
    from potstill.storage import Storage

#: Cuts that are counted again at most, the latest: a workspace from before there were totals may have thousands.
AT_MOST = 10


def add_join(lake: Lake, cuts: Storage, joined: JoinReport) -> None:
    """Add a join to the totals, after complete joins before it that are not in them.

    Args:
        lake: The tables of events.
        cuts: The folder of cuts.
        joined: Report of the join; its cut may be None.
    """
    missed = _missed(lake, cuts, joined.cut)
    for place, cut in enumerate(missed):
        recent = place >= len(missed) - AT_MOST
        add_totals(cuts, cut.number, recount_rewards(lake, cuts, cut) if recent else None)
    add_totals(cuts, joined.cut, joined.rewards)


def _missed(lake: Lake, cuts: Storage, present: int | None) -> list[Cut]:
    """Complete joins that are not in the totals, without the present one; oldest first."""
    counted, missed = read_totals(cuts).cut, []
    with suppress(FileNotFoundError, CorruptCut):  # what is before a lost cut is not known, and totals are not vital
        for cut in takewhile(lambda cut: cut.number > counted, complete_cuts(lake, cuts)):
            if cut.kind == "join" and cut.number != present:
                missed.append(cut)
    return missed[::-1]
