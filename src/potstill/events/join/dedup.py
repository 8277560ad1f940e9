"""Several decisions of one id: which of them counts.

A first pass over 64-bit hashes of the ids finds the few that may stand twice, among the rows of a cut or in what was
observed before; the ids themselves decide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.events.join.changes import Rows
from potstill.events.join.ids import HASH, Index, Partition, distinct
from potstill.events.join.sources import Sources
from potstill.events.lake.fit import decision_fits
from potstill.events.lake.schema import TIME

#: Rows of suspects that are looked at in one go.
SUSPECTS = 2_000_000
#: Of rows with equal times the smallest counts.
_ORDER = ("policy", "action", "propensity")


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

    @classmethod
    def all(cls, parts: Iterable[Copies]) -> Copies:
        """Those of several parts of the ids."""
        parts = [cls(pl.DataFrame(schema={"id": pl.String(), "time": TIME}), 0, 0), *parts]
        return cls(
            pl.concat([part.firsts for part in parts]),
            sum(part.duplicates for part in parts),
            sum(part.conflicting for part in parts),
        )

    def without(self, decisions: pl.DataFrame) -> pl.DataFrame:
        """Decisions of a stretch of time, each id at most once, and only where it counts."""
        if not len(self.firsts):
            return decisions
        single = decisions.join(self.firsts, on="id", how="anti")
        several = decisions.join(self.firsts, on=["id", "time"], how="semi")
        # Equal times: by what was decided, then by whatever else may differ, so that the order of files is nothing.
        several = several.sort(*_ORDER, *(name for name in several.columns if name not in _ORDER))
        return pl.concat([single, several.unique("id", keep="first", maintain_order=True)])


def find_copies(sources: Sources, partition: Partition, index: Index) -> Copies:
    """The ids that stand more than once, or were observed by an earlier cut near one of their days.

    Args:
        sources: the rows.
        partition: the ids to look at.
        index: the decisions of these ids that the cut takes up.
    """
    days = index.days(margin=1)
    observed = sources.observed(days)
    known = [
        _known(partition.rows(sources.observed([day])), index) for day in sorted(days)
    ]  # a day at a time in memory
    suspects = distinct(np.sort(np.concatenate([index.repeated, *known])))
    many = 1 + int(index.rows_of(suspects).sum()) // SUSPECTS
    return Copies.all(
        _resolve(sources.decisions, observed, part) for part in np.array_split(suspects, many) if len(part)
    )


def _known(observed: pl.LazyFrame, index: Index) -> NDArray[np.uint64]:
    """The hashes of observations that are also those of decisions."""
    hashes = observed.select(HASH).collect(engine="streaming")["hash"].to_numpy()
    return hashes[index.rows_of(hashes) > 0]


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
    suspected = HASH.is_in(pl.Series(suspects).implode())
    return rows.filter(suspected, *conditions).select("id", "time", *_ORDER).collect(engine="streaming")
