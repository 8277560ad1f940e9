"""What making a cut reads, worked out once and small enough to be sent to other machines."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from potstill.events.join.changes import BEGINNING, END, Part, Rows, all_rows, arrived, taken_up
from potstill.events.join.rewards import SKEW

if TYPE_CHECKING:
    from potstill.events.join.cuts import Cut
    from potstill.events.lake.lake import Lake


@dataclass(frozen=True)
class Sources:
    """The rows of the lake that matter to a cut.

    Attributes:
        decisions: those that it takes up.
        soon: the decisions that are not final, and can have rewards that are.
        rewards: all of them.
        taken_rewards: those that it takes up.
        arrived_rewards: those that arrived since the last cut, whatever their time, where that is known.
    """

    lake: Lake
    cut: Cut
    decisions: Rows
    soon: Rows
    rewards: Rows
    taken_rewards: Rows
    arrived_rewards: Rows

    @classmethod
    def of(cls, lake: Lake, cut: Cut, previous: Cut | None, decisions: Rows) -> Sources:
        """Those of a cut after a complete one, which takes up some decisions."""
        return cls(
            lake,
            cut,
            decisions,
            soon=all_rows(lake, "decisions", cut).within(cut.until, cut.until + SKEW),
            rewards=all_rows(lake, "rewards", cut),
            taken_rewards=_taken_rewards(lake, cut, previous),
            arrived_rewards=_arrived_rewards(lake, cut, previous),
        )

    def observed(self, days: Collection[dt.date]) -> pl.LazyFrame:
        """What earlier cuts observed on some UTC days."""
        return self.lake.scan("observations", days=days).filter(pl.col("cut") < self.cut.number)


def _taken_rewards(lake: Lake, cut: Cut, previous: Cut | None) -> Rows:
    rows = taken_up(lake, "rewards", cut, previous)
    if previous is None or rows.exact:
        return rows
    return rows.within(previous.until, cut.until)  # those that came late cannot be told from those that were used


def _arrived_rewards(lake: Lake, cut: Cut, previous: Cut | None) -> Rows:
    files = None if previous is None else arrived(lake, "rewards", cut, previous)
    return Rows(lake, "rewards", [Part(files, BEGINNING, END)] if files else [])
