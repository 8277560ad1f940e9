"""Observations of a range of cuts, read from the lake and encoded in chunks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.problem import Observations, Problem
from potstill.spaces import lake_columns
from potstill.tables import SECOND, decision_fits, encode_contexts, moment, reward_fits

if TYPE_CHECKING:
    from potstill.events.lake.lake import Lake
    from potstill.events.lake.table import File

#: Up to this many observations, chunks may end between any two times; above, between seconds, which takes less memory.
EXACT = 1_000_000


def count_observations(
    lake: Lake, after: int, to: int, *, without: Collection[str] = (), problem: Problem | None = None
) -> int:
    """Number of observations of the cuts above `after` and up to `to`, except those of the arms in `without`.

    Args:
        lake: The tables of events.
        after: The last cut before them.
        to: The last cut of them.
        without: Arms of experiments to leave out.
        problem: Count only observations that fit it; all if left out.
    """
    rows = _of_cuts(lake.scan("observations"), after, to).filter(_of_other_arms(without))
    if problem is not None:
        rows = rows.filter(decision_fits(problem), reward_fits(problem))
    return int(rows.select(pl.len()).collect().item())


def count_by_action(lake: Lake) -> dict[str, int]:
    """Number of observations of each action, by the name that the lake has; for a list of actions."""
    counted = lake.scan("observations").group_by("action").len().collect().sort("action")
    return {str(name): int(count) for name, count in counted.rows()}


def count_of_actions(lake: Lake, actions: Collection[str], to: int) -> int:
    """Number of observations of some actions in the cuts up to `to`; for a list of actions."""
    rows = _of_cuts(lake.scan("observations"), 0, to).filter(pl.col("action").is_in(sorted(actions)))
    return int(rows.select(pl.len()).collect().item())


def read_observations(
    lake: Lake, problem: Problem, after: int, to: int, rows: int = 200_000, *, without: Collection[str] = ()
) -> Iterator[Observations]:
    """Observations of `observation_chunks`, chunk by chunk; chunks without a row that fits are left out."""
    found = (chunk.read() for chunk in observation_chunks(lake, problem, after, to, rows, without=without))
    return (part for part in found if len(part))


@dataclass(frozen=True)
class ObservationChunk:
    """A range of observations, not read yet. It is small, so that another machine can read it."""

    lake: Lake
    problem: Problem
    files: list[File]
    where: list[pl.Expr]

    def read(self) -> Observations:
        """Observations that fit the problem, in order of cut, time and id."""
        fits = [decision_fits(self.problem), reward_fits(self.problem)]
        frame = self.lake.read("observations", self.files).filter(*self.where, *fits).collect(engine="streaming")
        return encode_observations(frame.sort("cut", "time", "id"), self.problem)


def observation_chunks(
    lake: Lake, problem: Problem, after: int, to: int, rows: int = 200_000, *, without: Collection[str] = ()
) -> Iterator[ObservationChunk]:
    """Observations of the cuts above `after` and up to `to`, by cut, time and id, in chunks of about `rows`.

    Chunks depend on the observations alone, not on the files that hold them: those of one cut and time stay together,
    and of one cut and second where there are many. Observations that do not fit the problem, because it has changed,
    are left out, as by `count_observations` with that problem. Observations of the arms in `without`, such as
    ``hd-first:control``, are left out too.
    """
    files, wanted = lake.files("observations"), _of_other_arms(without)
    found = _of_cuts(lake.read("observations", files), after, to).filter(wanted)
    unit = 1 if found.select(pl.len()).collect().item() <= EXACT else SECOND
    time = pl.col("time").dt.epoch("us") // unit * unit
    keys = found.group_by("cut", time.alias("time")).len().collect(engine="streaming").sort("cut", "time")
    for first, last in _chunks(keys["len"].to_numpy(), rows):
        times = keys["time"][first:last]
        earliest, latest = int(times.min()), int(times.max()) + unit - 1  # type: ignore[arg-type]
        near = [file for file in files if file.first <= latest and file.last >= earliest]
        stretch = pl.col("time").is_between(moment(earliest), moment(latest))
        yield ObservationChunk(lake, problem, near, [stretch, wanted, *_within(keys, first, last, unit)])


def encode_observations(frame: pl.DataFrame, problem: Problem) -> Observations:
    """Observations of rows of the table ``observations`` that fit the problem."""
    return Observations(
        problem,
        encode_contexts(frame, problem),
        lake_columns(problem.actions).actions(frame["action"]),
        frame["reward"].to_numpy(),
        frame["propensity"].to_numpy().astype(np.float32),
    )


def _of_cuts(rows: pl.LazyFrame, after: int, to: int) -> pl.LazyFrame:
    return rows.filter(pl.col("cut") > after, pl.col("cut") <= to)


def _of_other_arms(arms: Collection[str]) -> pl.Expr:
    """Whether an observation belongs to none of these arms."""
    return ~pl.col("arm").is_in(sorted(arms)).fill_null(value=False) if arms else pl.lit(value=True)


def _chunks(counts: NDArray[np.uint32], rows: int) -> list[tuple[int, int]]:
    """First and last key of each chunk, from the number of observations of each key."""
    if not len(counts):
        return []
    ends = np.cumsum(counts, dtype=np.int64)
    inner = np.searchsorted(ends, np.arange(rows, ends[-1], rows)) + 1
    return list(pairwise(np.unique([0, *inner, len(counts)]).tolist()))


def _within(keys: pl.DataFrame, first: int, last: int, unit: int) -> list[pl.Expr]:
    """Conditions for observations whose key is from a chunk's first to its last."""
    cut, time = pl.col("cut"), pl.col("time")
    (low, since, _), (high, until, _) = keys.row(first), keys.row(last - 1)
    from_low = (cut > low) | ((cut == low) & (time >= moment(since)))
    to_high = (cut < high) | ((cut == high) & (time < moment(until + unit)))
    return [cut.is_between(low, high), from_low, to_high]
