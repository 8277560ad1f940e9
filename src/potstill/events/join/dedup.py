"""Deduplication of decisions by id.

A first pass over 64-bit hashes of the ids finds the few that may occur twice, among the rows of a cut or in earlier
observations; then the ids themselves are compared.
"""

from __future__ import annotations

import datetime as dt
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.errors import PotstillError
from potstill.events.join.changes import REPEATS, CutInputs
from potstill.tables import TIME, decision_fits

#: Hash of an id; different ids almost never share one.
HASH = pl.col("id").hash(0).alias("hash")
_PROBE = "potstill"


#: Rows of possible duplicates that are resolved at a time.
SUSPECTS = 2_000_000
#: Order of rows with equal times; the smallest counts.
_ORDER = ("policy", "action", "propensity")
_ROW = ("id", "time", *_ORDER)


class HashMismatch(PotstillError, RuntimeError):
    """Machines of one join hash ids differently."""


@dataclass(frozen=True)
class Partition:
    """Ids with hash % `of` == `number`. All rows of an id are in one partition.

    Attributes:
        probe: The hash of a known word, by which a machine that hashes otherwise is found out.
    """

    number: int
    of: int
    probe: int

    def rows(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Rows of the partition."""
        return rows if self.of == 1 else rows.filter(HASH % self.of == self.number)

    def check(self) -> None:
        """Raise `HashMismatch` if this machine hashes differently from the one that made the partitions."""
        if self.of > 1 and self.probe != _probe():
            raise HashMismatch(
                f"{socket.gethostname()} hashes ids otherwise than the machine that runs the join, so that some would "
                f"be missed; have the same version of Polars on all machines (here it is {pl.__version__})"
            )


def partitions(count: int) -> list[Partition]:
    """All ids, in `count` partitions of about the same size."""
    return [Partition(number, count, _probe()) for number in range(count)]


@dataclass(frozen=True)
class Index:
    """Hashes of the ids and times of some rows, both in order of the hashes."""

    hashes: NDArray[np.uint64]
    times: NDArray[np.int64]

    @classmethod
    def of(cls, rows: pl.LazyFrame) -> Index:
        """Index built in one pass over two columns: 16 bytes for each row."""
        frame = rows.select(HASH, pl.col("time").dt.epoch("us")).collect(engine="streaming")
        hashes, times = frame["hash"].to_numpy(), frame["time"].to_numpy()
        order = np.argsort(hashes)
        return cls(hashes[order], times[order])

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def repeated(self) -> NDArray[np.uint64]:
        """Hashes that occur more than once."""
        return distinct(self.hashes[1:][self.hashes[1:] == self.hashes[:-1]])

    def rows_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Number of rows of each of some hashes."""
        return np.searchsorted(self.hashes, hashes, "right") - np.searchsorted(self.hashes, hashes)

    def first_times(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Each hash once, in order, and the earliest time of its rows."""
        starts = np.flatnonzero(np.r_[True, self.hashes[1:] != self.hashes[:-1]]) if len(self) else np.zeros(0, int)
        return self.hashes[starts], np.minimum.reduceat(self.times, starts) if len(self) else self.times

    def every(self, rows: int) -> NDArray[np.int64]:
        """Sorted times, every `rows`-th one."""
        return np.sort(self.times)[rows - 1 :: rows]

    def days(self, margin: int) -> set[dt.date]:
        """UTC days of the rows, and `margin` days before and after each."""
        days = np.unique(self.times // 86_400_000_000)
        near = {int(day) + step for day in days for step in range(-margin, margin + 1)}
        return {dt.date(1970, 1, 1) + dt.timedelta(days=day) for day in near}


def distinct(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Distinct values of sorted hashes; `np.unique` is slower, because it sorts again."""
    return hashes[np.r_[True, hashes[1:] != hashes[:-1]]] if len(hashes) else hashes


def _probe() -> int:
    return int(pl.select(pl.lit(_PROBE).alias("id")).select(HASH).item())


@dataclass(frozen=True)
class Duplicates:
    """Ids that occur more than once.

    Attributes:
        firsts: Such an `id`, and the time of the row that counts; no time if none does.
        duplicates: Number of further rows that agree with the row that counts.
        conflicting: Number of further rows with another action, propensity or policy.
        ambiguous: Number of ids whose rows are not of one decision, of which none counts.
    """

    firsts: pl.DataFrame
    duplicates: int
    conflicting: int
    ambiguous: int

    @classmethod
    def all(cls, parts: Iterable[Duplicates]) -> Duplicates:
        """Duplicates of several sets of ids together."""
        parts = [cls(pl.DataFrame(schema={"id": pl.String(), "time": TIME}), 0, 0, 0), *parts]
        return cls(
            pl.concat([part.firsts for part in parts]),
            sum(part.duplicates for part in parts),
            sum(part.conflicting for part in parts),
            sum(part.ambiguous for part in parts),
        )

    def without(self, decisions: pl.DataFrame) -> pl.DataFrame:
        """Deduplicated decisions of a time range: each id at most once, and only the row that counts."""
        if not len(self.firsts):
            return decisions
        single = decisions.join(self.firsts, on="id", how="anti")
        several = decisions.join(self.firsts, on=["id", "time"], how="semi")
        # Equal times: by the decision, then by every other column, so that the order of files does not matter.
        several = several.sort(*_ORDER, *(name for name in several.columns if name not in _ORDER))
        return pl.concat([single, several.unique("id", keep="first", maintain_order=True)])


def find_duplicates(sources: CutInputs, partition: Partition, index: Index) -> Duplicates:
    """Ids that occur more than once, or that an earlier cut observed near one of their days.

    Args:
        sources: The rows.
        partition: The ids to look at.
        index: The decisions of these ids that the cut joins.
    """
    days = index.days(margin=1)
    observed = sources.observed(days)
    known = [
        _known(partition.rows(sources.observed([day])), index) for day in sorted(days)
    ]  # one day in memory at a time
    repeats = _known(partition.rows(sources.around.scan()), index)
    suspects = distinct(np.sort(np.concatenate([index.repeated, repeats, *known])))
    many = 1 + int(index.rows_of(suspects).sum()) // SUSPECTS
    return Duplicates.all(_resolve(sources, observed, part) for part in np.array_split(suspects, many) if len(part))


def _known(observed: pl.LazyFrame, index: Index) -> NDArray[np.uint64]:
    """Hashes that observations and decisions share."""
    hashes = observed.select(HASH).collect(engine="streaming")["hash"].to_numpy()
    return hashes[index.rows_of(hashes) > 0]


def _resolve(sources: CutInputs, observed: pl.LazyFrame, suspects: NDArray[np.uint64]) -> Duplicates:
    rows, columns = sources.decisions, (*_ROW, "mode")
    fits = decision_fits(rows.lake.problem)
    fitting = _of(rows.scan(), suspects, fits, columns=columns).sort("time", *_ORDER).with_row_index("row")
    around = _of(sources.around.scan(), suspects, fits, columns=columns)
    near = _near(fitting, _of(observed, suspects))
    new = fitting.join(near, on="row", how="anti")
    firsts = new.unique("id", keep="first", maintain_order=True)
    ambiguous = _ambiguous(pl.concat([new.select(columns), _repeats(around, firsts)]), firsts)
    agreeing = _agreeing(new, firsts, on="id") - len(firsts)
    conflicting = len(new) - len(firsts) - agreeing
    if rows.exact:  # else they are mostly the observed rows themselves, read again
        same = _agreeing(fitting, near, on="row")
        agreeing, conflicting = agreeing + same, conflicting + len(near) - same
    counting = firsts.join(ambiguous, on="id", how="anti").select("id", "time")
    ids = fitting.select("id").unique()
    return Duplicates(ids.join(counting, on="id", how="left"), agreeing, conflicting, len(ambiguous))


def _near(rows: pl.DataFrame, observed: pl.DataFrame) -> pl.DataFrame:
    """Each row with an observation of its id at most one UTC day away, with what the earliest such one states."""
    apart = (pl.col("time").dt.date() - pl.col("time_observed").dt.date()).dt.total_days().abs()
    pairs = rows.select("row", "id", "time").join(observed, on="id", suffix="_observed").filter(apart <= 1)
    return pairs.sort("time_observed").unique("row", keep="first", maintain_order=True).select("row", *_ORDER)


def _repeats(around: pl.DataFrame, firsts: pl.DataFrame) -> pl.DataFrame:
    """Rows outside of the cut that may be repeats of the first of their id: those close to it in time."""
    apart = (pl.col("time") - pl.col("time_first")).dt.total_microseconds().abs()
    pairs = around.join(firsts.select("id", "time"), on="id", suffix="_first")
    return pairs.filter(apart <= REPEATS).select(around.columns)


def _ambiguous(rows: pl.DataFrame, firsts: pl.DataFrame) -> pl.DataFrame:
    """Ids with rows of another action, propensity or policy than the first: it is not known which was answered.

    Equal actions of two versions are no exception. Ids on which versions agree would be kept, and others left out: the
    observations would be selected by the action, under propensities that know nothing of it.

    A decision one microsecond after a fallback was replaced by it: the fallback was answered.
    """
    fallbacks = rows.filter(mode="fallback").select("id", pl.col("time") + pl.duration(microseconds=1))
    answered = rows.join(fallbacks, on=["id", "time"], how="anti")
    pairs = answered.join(firsts.select("id", *_ORDER), on="id", suffix="_first")
    return pairs.filter(~_agrees("first")).select("id").unique()


def _agreeing(rows: pl.DataFrame, reference: pl.DataFrame, on: str) -> int:
    """Number of rows that agree with their reference."""
    return len(rows.join(reference.select(on, *_ORDER), on=on, suffix="_reference").filter(_agrees("reference")))


def _agrees(suffix: str) -> pl.Expr:
    """Whether a row states the same decision as the row that it was joined with."""
    return pl.all_horizontal(pl.col(name).eq_missing(pl.col(f"{name}_{suffix}")) for name in _ORDER)


def _of(
    rows: pl.LazyFrame, suspects: NDArray[np.uint64], *conditions: pl.Expr, columns: Sequence[str] = _ROW
) -> pl.DataFrame:
    # A filter rather than a join: other columns are then read only where it holds.
    suspected = HASH.is_in(pl.Series(suspects).implode())
    return rows.filter(suspected, *conditions).select(columns).collect(engine="streaming")
