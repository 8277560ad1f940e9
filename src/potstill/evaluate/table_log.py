"""Someone else's log, from a table: CSV, Parquet or Delta Lake, read a part at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.errors import InvalidLog
from potstill.evaluate.lake_log import Progress, raw_values
from potstill.evaluate.log import Block
from potstill.events.lake.observations import encoded_contexts
from potstill.problem import Discrete, Problem, Reward
from potstill.tables import columns as m
from potstill.tables import rows as f
from potstill.tables.columns import Columns, Stated
from potstill.tables.infer import in_one_line
from potstill.tables.scan import scan_table

#: Rows in memory at a time, and rows that a refusal names.
ROWS, NAMED = 200_000, 5


class StatedTarget:
    """Such a policy as a target, on blocks that carry its columns among their groups."""

    def __init__(self, stated: Stated, problem: Problem) -> None:
        self.name = f"column {stated.name}" if not stated.actions else f"columns {stated.name}…"
        self._stated, self._actions = stated, problem.actions

    def probabilities(self, block: Block, first_row: int) -> NDArray[np.float64]:  # noqa: ARG002 - others name rows by it
        """As the columns say; rows in which they do not were refused when the table was read."""
        found: NDArray[np.float64] = np.zeros((len(block), len(self._actions)))
        for action, column in zip(self._stated.actions, self._stated.columns, strict=False):
            found[:, self._actions.index(action)] = block.groups[column]
        if self._stated.actions:
            found /= found.sum(axis=1, keepdims=True)
            return found
        named = [self._actions.index(name) for name in block.groups[self._stated.name].tolist()]
        found[np.arange(len(block)), named] = 1.0
        return found


class TableLog:
    """A table as a log to evaluate policies on.

    Args:
        place: the table.
        columns: which column is what.
        problem: that was decided, if there is a definition: its features are columns of their names. Made from the
            table if left out: actions are the values of the action column, features those of `columns.context`.
        reward: the range of rewards, where the problem is made from the table; bounded intervals need one.
        targets: policies that the table itself states.
        by: columns to evaluate segments by.
        skip: leave out rows that will not do, instead of refusing the table.
        since: only rows from this moment on; microseconds since 1970.
        until: and before this one.
        on_progress: told of rows while blocks are read.

    Attributes:
        left_out: how many rows are not used: ``"unfit"``, or ``"outside"`` of the time.
        unfit: why rows will not do, and how many.
        span: the times of the first and the last row; microseconds since 1970.
    """

    def __init__(
        self,
        place: str,
        columns: Columns,
        *,
        problem: Problem | None = None,
        reward: Reward | None = None,
        targets: Sequence[Stated] = (),
        by: Sequence[str] = (),
        skip: bool = False,
        since: int | None = None,
        until: int | None = None,
        on_progress: Progress | None = None,
    ) -> None:
        self.place, self._columns, self._targets = place, columns, tuple(targets)
        self._on_progress = on_progress
        self._carried = tuple(dict.fromkeys([*by, *(name for target in targets for name in target.columns)]))
        self._table = scan_table(place)
        self._check(problem, by)
        self._outside = self._outside_of(since, until)
        self.problem: Problem = problem or self._inferred(reward or Reward())
        self.span: tuple[int, int] | None = None
        self.unfit: Counter[str] = Counter()
        self.left_out: Mapping[str, int] = self._looked_over(skip=skip)

    def __len__(self) -> int:
        return self._total - sum(self.left_out.values())

    def blocks(self) -> Iterator[Block]:
        """The rows that will do, in the table's order, in parts."""
        for done, rows in self._parts():
            used = collected(self._reading.rows(rows), self.place).filter(f.FITS, ~self._outside)
            if len(used):
                yield self._block(used)
            if self._on_progress is not None:
                self._on_progress(done, self._total)

    @cached_property
    def _total(self) -> int:
        return int(collected(self._table.select(pl.len()), self.place).item())

    def _check(self, problem: Problem | None, by: Sequence[str]) -> None:
        features = [feature.name for feature in problem.context] if problem else []
        others = [*(("--by", name) for name in by), *(("a policy that needs no such feature", n) for n in features)]
        m.check_propensity(self._columns.propensity)
        m.check_columns(columns_of(self._table, self.place), self._columns, others, self.place)
        stated = [name for target in self._targets for name in target.columns]
        m.check_context(self._columns, stated, self.place)
        if not self._total:
            raise InvalidLog(f"{self.place}: it has no rows")

    def _inferred(self, reward: Reward) -> Problem:
        naming = [self._columns.action, *(target.name for target in self._targets if not target.actions)]
        stated = [action for target in self._targets for action in target.actions]
        names = m.actions_in(self._table, naming, stated, self.place)
        features = m.features_in(self._table, self._columns.context, self.place)
        return Problem(name=self.place, context=features, actions=Discrete(names), reward=reward)

    def _outside_of(self, since: int | None, until: int | None) -> pl.Expr:
        outside = pl.lit(value=False)
        if (since, until) != (None, None) and self._columns.time is None:
            raise InvalidLog(f"{self.place}: name the column that says when a row was with --time")
        time = pl.col(f.MOMENT).dt.epoch("us")
        outside = outside if since is None else outside | (time < since)
        return outside if until is None else outside | (time >= until)

    @cached_property
    def _reading(self) -> f.Reading:
        return f.reading(self._table.collect_schema(), self._columns, self.problem, self._targets, self._carried)

    def _parts(self) -> Iterator[tuple[int, pl.LazyFrame]]:
        """All rows with their numbers, and how many have been read after each part."""
        for at in range(0, self._total, ROWS):
            yield min(at + ROWS, self._total), self._table.slice(at, ROWS).with_row_index(f.ROW, offset=at)

    def _looked_over(self, *, skip: bool) -> dict[str, int]:
        """Look at every row once: how many are left out, by why. Refuse the table if rows will not do."""
        unfit: list[tuple[int, str]] = []
        count = outside = 0
        for _, rows in self._parts():
            part = collected(self._reading.rows(rows), self.place)
            fitting = part.filter(f.FITS)
            if len(fitting) < len(part):
                unfit += collected(self._reading.unfit(rows).head(NAMED), self.place).rows()
                self.unfit.update(dict(collected(self._reading.reasons(rows), self.place).rows()))
            used = fitting.filter(~self._outside)
            count, outside = count + len(part) - len(fitting), outside + len(fitting) - len(used)
            self._widen_span(used)
        if count and not skip:
            way_out = "Mend them, or leave such rows out with --skip-unfit"
            raise InvalidLog(f"{_refusal(self.place, unfit, count)} {way_out}")
        if count and count == self._total:
            raise InvalidLog(f"{self.place}: none of its {count:,} rows will do: {_first(unfit)}")
        return {why: rows for why, rows in (("unfit", count), ("outside", outside)) if rows}

    def _widen_span(self, used: pl.DataFrame) -> None:
        if self._columns.time and len(used):
            times = used[f.MOMENT].dt.epoch("us").to_numpy()
            first, last = self.span or (times[0], times[0])
            self.span = min(first, int(times.min())), max(last, int(times.max()))

    def _block(self, frame: pl.DataFrame) -> Block:
        names = self.problem.actions.names
        return Block(
            contexts=encoded_contexts(frame, self.problem),
            actions=frame[f.ACTION].replace_strict(names, range(len(names)), return_dtype=pl.Int32).to_numpy(),
            rewards=frame[f.REWARD].to_numpy(),
            propensities=frame[f.PROPENSITY].to_numpy(),
            times=frame[f.MOMENT].dt.epoch("us").to_numpy() if self._columns.time else None,
            groups={name: raw_values(frame[f.carried(name)]) for name in self._carried},
        )


def table_contexts(place: str, problem: Problem, at_most: int) -> NDArray[np.float32]:
    """The encoded contexts of a table's last rows, float32[N, d]; columns are called as the features are."""
    table = scan_table(place)
    there = columns_of(table, place)
    for feature in problem.context:
        if feature.name not in there:
            raise InvalidLog(f"{place}: there is no column {feature.name!r}, which is a feature of the problem")
    reading = f.Reading(f.feature_parts(problem, table.collect_schema()))
    first = max(collected(table.select(pl.len()), place).item() - at_most, 0)
    rows = table.slice(first).with_row_index(f.ROW, offset=first)
    unfit = collected(reading.unfit(rows), place)
    if len(unfit):
        raise InvalidLog(f"{_refusal(place, unfit.rows(), len(unfit))} Mend them, or take them out of the table")
    return encoded_contexts(collected(reading.rows(rows), place), problem)


def columns_of(table: pl.LazyFrame, place: str) -> list[str]:
    """The names of a table's columns; `InvalidLog` where it cannot be read."""
    return collected(table.head(0), place).columns


def collected(table: pl.LazyFrame, place: str) -> pl.DataFrame:
    """The rows of a table; `InvalidLog` where it cannot be read."""
    try:
        return table.collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InvalidLog(f"{place}: {in_one_line(error)}") from error


def _refusal(place: str, unfit: Sequence[tuple[int, str]], count: int) -> str:
    more = f"; and {count - NAMED:,} more {'row' if count - NAMED == 1 else 'rows'}" if count > NAMED else ""
    header = " after the header" if place.lower().endswith(".csv") else ""
    return f"{place}: {_first(unfit)}{more}. Row 0 is the first{header}."


def _first(unfit: Sequence[tuple[int, str]]) -> str:
    return "; ".join(f"row {row}: {why}" for row, why in unfit[:NAMED])
