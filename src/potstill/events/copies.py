"""Several decisions of one id: which of them counts.

A first pass over 64-bit hashes of the ids finds the few that may stand twice, among the rows of a cut or in what was
observed before; the ids themselves decide.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.events.arrivals import Rows
from potstill.events.fit import decision_fits
from potstill.events.schema import TIME

if TYPE_CHECKING:
    from potstill.events.lake import Lake

#: Rows of suspects that are looked at in one go.
SUSPECTS = 2_000_000
#: Of rows with equal times the smallest counts.
_ORDER = ("policy", "action", "propensity")


def hashed(rows: pl.LazyFrame) -> pl.LazyFrame:
    """Rows with a 64-bit `hash` of their id; equal ids have equal hashes, and different ids nearly never."""
    return rows.with_columns(pl.col("id").hash(0).alias("hash"))


@dataclass(frozen=True)
class Index:
    """The ids, as hashes, and the times of the rows that a cut takes up, both in the order of the hashes."""

    hashes: NDArray[np.uint64]
    times: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Rows) -> Index:
        """From one pass over two columns: 16 bytes for each row."""
        frame = hashed(rows.scan()).select("hash", pl.col("time").dt.epoch("us")).collect(engine="streaming")
        hashes, times = frame["hash"].to_numpy(), frame["time"].to_numpy()
        order = np.argsort(hashes)
        return cls(hashes[order], times[order])

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def repeated(self) -> NDArray[np.uint64]:
        """The hashes that occur more than once."""
        return np.unique(self.hashes[1:][self.hashes[1:] == self.hashes[:-1]])

    def rows_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
        """How many rows each of some hashes has here."""
        return np.searchsorted(self.hashes, hashes, "right") - np.searchsorted(self.hashes, hashes)

    def first_times(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Each hash once, in order, and the earliest time of its rows."""
        starts = np.flatnonzero(np.r_[True, self.hashes[1:] != self.hashes[:-1]]) if len(self) else np.zeros(0, int)
        return self.hashes[starts], np.minimum.reduceat(self.times, starts) if len(self) else self.times

    def stretches(self, rows: int) -> list[tuple[int, int]]:
        """The time in pieces `(after, to]` with about so many rows each; those of equal time stay together."""
        if not len(self):
            return []
        times = np.sort(self.times)
        ends = np.unique(np.r_[times[rows - 1 :: rows], times[-1]]).tolist()
        return list(pairwise([int(times[0]) - 1, *ends]))

    def days(self, margin: int) -> set[dt.date]:
        """The UTC days of the rows, and so many days before and after each."""
        days = np.unique(self.times // 86_400_000_000)
        near = {int(day) + step for day in days for step in range(-margin, margin + 1)}
        return {dt.date(1970, 1, 1) + dt.timedelta(days=day) for day in near}


@dataclass(frozen=True)
class Copies:
    """What is known of ids that stand more than once.

    Attributes:
        firsts: such an `id`, and the time of the row that counts; no time if it was observed by an earlier cut.
        duplicates: how many other rows say the same as the one that counts.
        conflicting: how many say another action, propensity or policy.
    """

    firsts: pl.DataFrame
    duplicates: int
    conflicting: int

    def without(self, decisions: pl.DataFrame) -> pl.DataFrame:
        """Decisions of a stretch of time, each id at most once, and only where it counts."""
        if not len(self.firsts):
            return decisions
        single = decisions.join(self.firsts, on="id", how="anti")
        several = decisions.join(self.firsts, on=["id", "time"], how="semi")
        # Equal times: by what was decided, then by whatever else may differ, so that the order of files is nothing.
        several = several.sort(*_ORDER, *(name for name in several.columns if name not in _ORDER))
        return pl.concat([single, several.unique("id", keep="first", maintain_order=True)])


def find_copies(lake: Lake, rows: Rows, index: Index, cut: int) -> Copies:
    """The ids of a cut's rows that stand more than once, or were observed by an earlier cut near one of their days."""
    observed = lake.scan("observations", days=index.days(margin=1)).filter(pl.col("cut") < cut)
    known = np.unique(hashed(observed).select("hash").collect(engine="streaming")["hash"].to_numpy())
    suspects = np.union1d(index.repeated, known[index.rows_of(known) > 0])
    many = 1 + int(index.rows_of(suspects).sum()) // SUSPECTS
    parts = [_resolve(rows, observed, part) for part in np.array_split(suspects, many) if len(part)]
    parts.append(Copies(pl.DataFrame(schema={"id": pl.String(), "time": TIME}), 0, 0))
    return Copies(
        pl.concat([part.firsts for part in parts]),
        sum(part.duplicates for part in parts),
        sum(part.conflicting for part in parts),
    )


def _resolve(rows: Rows, observed: pl.LazyFrame, suspects: NDArray[np.uint64]) -> Copies:
    fitting = _of(rows.scan(), suspects, decision_fits(rows.lake.problem)).sort("time", *_ORDER)
    before = _observed_before(fitting, _of(observed, suspects))
    new = fitting.join(before, on="id", how="anti")
    firsts = new.unique("id", keep="first", maintain_order=True)
    others = new.filter(pl.col("id").is_duplicated())
    repeated = firsts.join(others, on="id", how="semi")
    agreeing = _agreeing(new, firsts) - len(firsts)
    conflicting = len(new) - len(firsts) - agreeing
    if rows.exact:  # else they are mostly the very rows that were observed, read once more
        again = fitting.join(before, on="id", how="semi")
        same = _agreeing(again, before)
        agreeing, conflicting = agreeing + same, conflicting + len(again) - same
    taken = before.select("id", pl.lit(None, TIME).alias("time"))
    return Copies(pl.concat([repeated.select("id", "time"), taken]), agreeing, conflicting)


def _observed_before(rows: pl.DataFrame, observed: pl.DataFrame) -> pl.DataFrame:
    """The ids of which an observation lies on the same day as one of the rows, or the day before or after."""
    apart = (pl.col("time").dt.date() - pl.col("time_observed").dt.date()).dt.total_days().abs()
    near = rows.select("id", "time").join(observed, on="id", suffix="_observed").filter(apart <= 1)
    return near.sort("time_observed").unique("id", keep="first", maintain_order=True).select("id", *_ORDER)


def _agreeing(rows: pl.DataFrame, reference: pl.DataFrame) -> int:
    """How many rows say the same as the reference of their id."""
    pairs = rows.join(reference.select("id", *_ORDER), on="id", suffix="_reference")
    return len(pairs.filter(*(pl.col(name).eq_missing(pl.col(f"{name}_reference")) for name in _ORDER)))


def _of(rows: pl.LazyFrame, suspects: NDArray[np.uint64], *conditions: pl.Expr) -> pl.DataFrame:
    # A filter and not a join: the other columns are then read only where it holds.
    suspected = pl.col("id").hash(0).is_in(pl.Series(suspects).implode())
    return rows.filter(suspected, *conditions).select("id", "time", *_ORDER).collect(engine="streaming")
