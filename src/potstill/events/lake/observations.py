"""What was learnt from the events: observations of a range of cuts, encoded, in chunks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.events.join.changes import SECOND, moment
from potstill.events.lake.fit import decision_fits, reward_fits
from potstill.problem import Categorical, Feature, Numeric, Observations, Problem
from potstill.tables.columns import context_column

if TYPE_CHECKING:
    from potstill.events.lake.lake import File, Lake

#: Up to so many observations chunks end between any two times; of more, whole seconds are counted, in less memory.
EXACT = 1_000_000
#: No value of a categorical feature: it stands for those that are unknown or missing.
_UNSEEN = ""


def count(lake: Lake, after: int, to: int, *, without: Collection[str] = ()) -> int:
    """How many observations the cuts above `after` and up to `to` made, without those of some arms of experiments."""
    rows = _of_cuts(lake.scan("observations"), after, to).filter(_of_other_arms(without))
    return int(rows.select(pl.len()).collect().item())


def observed(
    lake: Lake, problem: Problem, after: int, to: int, rows: int = 200_000, *, without: Collection[str] = ()
) -> Iterator[Observations]:
    """The observations of `chunks`, one chunk after the other; those of which nothing fits are left out."""
    found = (chunk.read() for chunk in chunks(lake, problem, after, to, rows, without=without))
    return (part for part in found if len(part))


@dataclass(frozen=True)
class Chunk:
    """Some of the observations, to be read here or, the chunk being small, on another machine."""

    lake: Lake
    problem: Problem
    files: list[File]
    where: list[pl.Expr]

    def read(self) -> Observations:
        """The observations that fit the problem, by cut, time and id."""
        fits = [decision_fits(self.problem), reward_fits(self.problem)]
        frame = self.lake.read("observations", self.files).filter(*self.where, *fits).collect(engine="streaming")
        return encoded(frame.sort("cut", "time", "id"), self.problem)


def chunks(
    lake: Lake, problem: Problem, after: int, to: int, rows: int = 200_000, *, without: Collection[str] = ()
) -> Iterator[Chunk]:
    """The observations of the cuts above `after` and up to `to`, by cut, time and id, in chunks of about `rows`.

    Where a chunk ends depends on the observations alone, not on the files that they are in: those of one cut and time
    stay together, and of one cut and second where there are many. Observations that do not fit the problem, since it
    has changed, are left out; `count` has them. So are those of the arms in `without`, such as ``hd-first:control``.
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
        yield Chunk(lake, problem, near, [stretch, wanted, *_within(keys, first, last, unit)])


def encoded(frame: pl.DataFrame, problem: Problem) -> Observations:
    """Rows of the table ``observations`` that fit the problem."""
    positions = {name: i for i, name in enumerate(problem.actions.names)}
    return Observations(
        problem,
        encoded_contexts(frame, problem),
        frame["action"].replace_strict(positions, return_dtype=pl.Int32).to_numpy(),
        frame["reward"].to_numpy(),
        frame["propensity"].to_numpy().astype(np.float32),
    )


def encoded_contexts(frame: pl.DataFrame, problem: Problem) -> NDArray[np.float32]:
    """The context columns of a frame as float32[N, d], as `Problem.encode` has them row by row.

    Missing values are filled before whole columns are encoded, with what the feature says or with a value that is
    encoded as zero; the flags of missing values are set afterwards.
    """
    columns = {feature.name: _filled(frame[context_column(feature.name)], feature) for feature in problem.context}
    contexts = problem.encode_many(columns) if columns else np.zeros((len(frame), 0), np.float32)
    at = 0
    for feature in problem.context:
        at += len(feature.labels)
        if feature.missing == "flag":  # the flag is the feature's last column
            contexts[:, at - 1] = frame[context_column(feature.name)].is_null().to_numpy()
    return contexts


def eligible_mask(frame: pl.DataFrame, names: Sequence[str]) -> NDArray[np.bool_] | None:
    """Which actions were allowed, bool[N, K]; None if all of them always were, or nothing is said."""
    stated = frame["eligible"]
    if stated.null_count() == len(frame):
        return None
    allowed = [stated.is_null() | stated.list.contains(name).fill_null(value=False) for name in names]
    return np.column_stack([column.to_numpy() for column in allowed])


def _filled(column: pl.Series, feature: Feature) -> NDArray[Any]:
    if isinstance(feature, Categorical):
        places = {value: i for i, value in enumerate(feature.values)}
        unseen = len(places)
        codes = column.replace_strict(places, default=unseen, return_dtype=pl.UInt32).fill_null(unseen)
        # As codes first: an array of strings is as wide as its longest, and an unknown one can be of any length.
        return np.take(np.array([*feature.values, _UNSEEN]), codes.to_numpy())
    if feature.missing == "flag":
        column = column.fill_null(feature.low if isinstance(feature, Numeric) else False)
    elif feature.missing != "error":
        column = column.fill_null(feature.missing)
    return column.to_numpy()


def _of_cuts(rows: pl.LazyFrame, after: int, to: int) -> pl.LazyFrame:
    return rows.filter(pl.col("cut") > after, pl.col("cut") <= to)


def _of_other_arms(arms: Collection[str]) -> pl.Expr:
    """True for observations of none of these arms."""
    return ~pl.col("arm").is_in(sorted(arms)).fill_null(value=False) if arms else pl.lit(value=True)


def _chunks(counts: NDArray[np.uint32], rows: int) -> list[tuple[int, int]]:
    """Where chunks of keys begin and end, each key with so many observations."""
    if not len(counts):
        return []
    ends = np.cumsum(counts, dtype=np.int64)
    inner = np.searchsorted(ends, np.arange(rows, ends[-1], rows)) + 1
    return list(pairwise(np.unique([0, *inner, len(counts)]).tolist()))


def _within(keys: pl.DataFrame, first: int, last: int, unit: int) -> list[pl.Expr]:
    """Conditions for observations whose key is one of a chunk's: from its first to its last."""
    cut, time = pl.col("cut"), pl.col("time")
    (low, since, _), (high, until, _) = keys.row(first), keys.row(last - 1)
    from_low = (cut > low) | ((cut == low) & (time >= moment(since)))
    to_high = (cut < high) | ((cut == high) & (time < moment(until + unit)))
    return [cut.is_between(low, high), from_low, to_high]
