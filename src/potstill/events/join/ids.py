"""Ids by their 64-bit hashes: partitions of them that fit in memory, and an index of the rows of one."""

from __future__ import annotations

import datetime as dt
import socket
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

#: Equal ids have equal hashes, and different ids nearly never.
HASH = pl.col("id").hash(0).alias("hash")
_PROBE = "potstill"


@dataclass(frozen=True)
class Partition:
    """The ids whose hash, divided by `of`, leaves `number`. All rows of an id are in one partition.

    Attributes:
        probe: the hash of a known word, by which a machine that hashes otherwise is found out.
    """

    number: int
    of: int
    probe: int

    def rows(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Those of the partition."""
        return rows if self.of == 1 else rows.filter(HASH % self.of == self.number)

    def check(self) -> None:
        """Raise `RuntimeError` if hashes are other ones here than where the partitions were made."""
        if self.of > 1 and self.probe != _probe():
            raise RuntimeError(
                f"{socket.gethostname()} hashes ids otherwise than the machine that runs the join, so that some would "
                f"be missed; have the same version of Polars on all machines (here it is {pl.__version__})"
            )


def partitions(count: int) -> list[Partition]:
    """All ids, in so many partitions of about the same size."""
    return [Partition(number, count, _probe()) for number in range(count)]


@dataclass(frozen=True)
class Index:
    """The ids, as hashes, and the times of some rows, both in the order of the hashes."""

    hashes: NDArray[np.uint64]
    times: NDArray[np.int64]

    @classmethod
    def of(cls, rows: pl.LazyFrame) -> Index:
        """From one pass over two columns: 16 bytes for each row."""
        frame = rows.select(HASH, pl.col("time").dt.epoch("us")).collect(engine="streaming")
        hashes, times = frame["hash"].to_numpy(), frame["time"].to_numpy()
        order = np.argsort(hashes)
        return cls(hashes[order], times[order])

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def repeated(self) -> NDArray[np.uint64]:
        """The hashes that occur more than once."""
        return distinct(self.hashes[1:][self.hashes[1:] == self.hashes[:-1]])

    def rows_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.intp]:
        """How many rows each of some hashes has here."""
        return np.searchsorted(self.hashes, hashes, "right") - np.searchsorted(self.hashes, hashes)

    def first_times(self) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Each hash once, in order, and the earliest time of its rows."""
        starts = np.flatnonzero(np.r_[True, self.hashes[1:] != self.hashes[:-1]]) if len(self) else np.zeros(0, int)
        return self.hashes[starts], np.minimum.reduceat(self.times, starts) if len(self) else self.times

    def every(self, rows: int) -> NDArray[np.int64]:
        """The times in order, one for every so many rows; fewer than that at the end have none."""
        return np.sort(self.times)[rows - 1 :: rows]

    def days(self, margin: int) -> set[dt.date]:
        """The UTC days of the rows, and so many days before and after each."""
        days = np.unique(self.times // 86_400_000_000)
        near = {int(day) + step for day in days for step in range(-margin, margin + 1)}
        return {dt.date(1970, 1, 1) + dt.timedelta(days=day) for day in near}


def distinct(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each of some hashes once, which are in order; `np.unique` is slow, since it does not know that they are."""
    return hashes[np.r_[True, hashes[1:] != hashes[:-1]]] if len(hashes) else hashes


def _probe() -> int:
    return int(pl.select(pl.lit(_PROBE).alias("id")).select(HASH).item())
