"""Totals of a workspace's joins: rewards that were used, and those that were not, in one small file.

The file is light to read, so that a service can show it without the libraries of the lake.
"""

from __future__ import annotations

import msgspec

from potstill.storage import Storage

FILE = "totals.json"


class RewardTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Rewards of all joins up to a cut.

    Attributes:
        cut: The last cut that is counted.
        matched: Rewards that were used.
        late: Rewards after the window of their decision.
        too_late: Rewards in the window that arrived after their decision was joined.
        orphans: Rewards of no known decision.
        uncounted: Number of joins up to the cut that are not counted, because their update was killed before it could
            count them and their events could not be read again.
    """

    cut: int = 0
    matched: int = 0
    late: int = 0
    too_late: int = 0
    orphans: int = 0
    uncounted: int = 0

    @property
    def unused(self) -> dict[str, int]:
        """Numbers of rewards that were not used, by reason."""
        return {"late": self.late, "too_late": self.too_late, "orphan": self.orphans}


#: Counts of one cut; its attributes are those of `RewardTotals`, and more.
COUNTED = ("matched", "late", "too_late", "orphans")


def read_totals(cuts: Storage) -> RewardTotals:
    """Totals in the folder of cuts; zeros if there is no file, or it cannot be read."""
    try:
        return msgspec.json.decode(cuts.read(FILE), type=RewardTotals)
    except (FileNotFoundError, msgspec.DecodeError):
        return RewardTotals()


def add_totals(cuts: Storage, cut: int | None, counts: object) -> None:
    """Add the counts of a cut, once.

    Args:
        cuts: The folder of cuts.
        cut: Number of the cut; None if there was none.
        counts: `RewardCounts` of its join; None if they are not known.
    """
    before = read_totals(cuts)
    if cut is None or cut <= before.cut:
        return
    sums = {name: getattr(before, name) + getattr(counts, name, 0) for name in COUNTED}
    uncounted = before.uncounted + (counts is None)
    cuts.replace(FILE, msgspec.json.encode(RewardTotals(cut=cut, uncounted=uncounted, **sums)))
