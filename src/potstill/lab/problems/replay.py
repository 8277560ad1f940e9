"""Replay: an algorithm is evaluated on a log of uniformly random decisions (Li, Chu, Langford, Wang 2011).

A logged row counts only if the algorithm picks the logged action; then the logged reward is what it would have earned.
Since every row matches with the same probability, 1/K, whatever the algorithm does, the rows that count are distributed
as they would be online. The others are spent for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
import polars as pl

from potstill.keys import Key
from potstill.lab.problems.world import Batch, Choose
from potstill.problem import Observations, Problem
from potstill.tables.infer import column_of


class LogExhausted(ValueError):
    """A log has too few rows for a trial."""


class Replay:
    """A world made of logged rows, which are met once each, in the order in which they come.

    Args:
        problem: what was decided.
        parts: the log, in parts of any size; one is held at a time.
    """

    def __init__(self, problem: Problem, parts: Iterable[Observations]) -> None:
        self.problem = problem
        self._parts = iter(parts)
        self._rows = Observations.none(problem)  # read, and not met yet
        self._met = self._counted = 0

    def batch(self, size: int, choose: Choose) -> Batch:
        """Meet rows until `size` of them count.

        `choose` sees blocks of `size` rows: of one shape, since algorithms compile for a shape. What follows the last
        row that counts is left for the next batch, to be decided anew by what has been learnt by then, so that where a
        block ends makes no difference.
        """
        kept: list[Observations] = []
        wanted = size
        while wanted:
            block = self._block(size, wanted)
            actions, propensities = choose(block.contexts)
            matches = np.flatnonzero(actions == block.actions)[:wanted]
            wanted -= len(matches)
            self._spend(len(block) if wanted else int(matches[-1]) + 1, len(matches))
            kept.append(replace(block[matches], propensities=propensities[matches]))
        return Batch(reduce(add, kept, Observations.none(self.problem)), None)

    def _block(self, size: int, wanted: int) -> Observations:
        """The next rows, `size` of them or what is left of the log."""
        while len(self._rows) < size and (part := next(self._parts, None)) is not None:
            self._rows = self._rows + part
        if not len(self._rows):
            raise self._exhausted(wanted)
        return self._rows[:size]

    def _spend(self, rows: int, counted: int) -> None:
        self._rows = self._rows[rows:]
        self._met += rows
        self._counted += counted

    def _exhausted(self, wanted: int) -> LogExhausted:
        more = wanted * len(self.problem.actions)
        return LogExhausted(
            f"the log has run out: {self._counted:,} of its {self._met:,} rows counted, and {wanted:,} more were wanted"
            f" for this batch, which takes about {more:,} more rows; log more, or ask for fewer decisions"
        )


def parts_of(folder: Path, problem: Problem, key: Key) -> Iterator[Observations]:
    """The parts of a log on disk, encoded: in an order of this key's own, with the rows of each part shuffled.

    Args:
        folder: of Parquet files, with the problem's features and `action`, `reward` and `propensity` as columns.
        problem: what was decided.
        key: of the order.
    """
    paths = sorted(folder.glob("part-*.parquet"))
    if not paths:
        raise FileNotFoundError(f"{folder} has no part-*.parquet, so it is no log; write one with write_log")
    for number in key.child("parts").generator().permutation(len(paths)):
        part = read_part(paths[number], problem)
        yield part[key.child("rows", int(number)).generator().permutation(len(part))]


def read_part(path: Path, problem: Problem) -> Observations:
    """One file of a log, all of whose decisions must have been uniformly random."""
    table = pl.read_parquet(path)
    wanted = [*(feature.name for feature in problem.context), "action", "reward", "propensity"]
    if absent := [name for name in wanted if name not in table.columns]:
        raise ValueError(f"{path}: the log has no column {absent[0]!r}; its columns are {', '.join(table.columns)}")
    propensity = table["propensity"].to_numpy()
    if not np.allclose(propensity, 1 / len(problem.actions), rtol=1e-4):
        raise ValueError(f"{path}: replay needs a log of uniformly random decisions; propensities are not all 1/K")
    return Observations.from_columns(
        problem,
        contexts={feature.name: column_of(table[feature.name], feature) for feature in problem.context},
        actions=_positions(table["action"], problem),
        rewards=table["reward"].to_numpy(),
        propensities=propensity,
    )


def _positions(actions: pl.Series, problem: Problem) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    names = problem.actions.names
    positions = actions.cast(pl.String).replace_strict(names, range(len(names)), default=None, return_dtype=pl.Int32)
    if positions.null_count():
        unknown = actions.filter(positions.is_null())[0]
        raise ValueError(f"the log has the action {unknown!r}; the problem's actions are {', '.join(names)}")
    return positions.to_numpy()
