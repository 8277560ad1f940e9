"""A user's table as a log: CSV, Parquet or Delta Lake, read in blocks of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill import tables
from potstill.errors import InvalidLog
from potstill.evaluate.lake_log import Progress, raw_values
from potstill.evaluate.log import Block
from potstill.problem import Discrete, Problem, Reward
from potstill.spaces import FiniteSpace, NamedActions, finite, lake_columns
from potstill.tables import FITS, NAMED, ROW, Columns, PolicyColumns, RowRules, carried, collected

#: Rows in memory at a time.
ROWS = 200_000


class TablePolicy:
    """A policy in columns of a table as a target, on blocks that carry these columns among their groups."""

    def __init__(self, columns: PolicyColumns, problem: Problem) -> None:
        self.name = f"columns {columns.name}…" if columns.actions else f"column {columns.name}"
        self._columns, self._space = columns, finite(problem.actions, "a policy in columns of a table")

    def probabilities(self, block: Block, first_row: int) -> NDArray[np.float64]:  # noqa: ARG002 - part of the contract
        """Probabilities float64[n, K] as the columns say; `TableLog` has refused rows in which they do not."""
        found = np.zeros((len(block), len(self._space)), np.float64)
        if not self._columns.actions:
            actions = self._space.encode(block.groups[self._columns.name].tolist())
            found[np.arange(len(block)), actions] = 1.0
            return found
        places = self._space.encode(self._columns.actions)
        for place, column in zip(places.tolist(), self._columns.columns, strict=True):
            found[:, place] = block.groups[column]
        found /= found.sum(axis=1, keepdims=True)
        return found


class TableActions:
    """A column with the action of each row as a target, such as a number, whose space is no list."""

    def __init__(self, columns: PolicyColumns) -> None:
        self.name, self._column = f"column {columns.name}", columns.name

    def actions(self, block: Block, first_row: int) -> NDArray[np.float64]:  # noqa: ARG002 - part of the contract
        """The column's actions; `TableLog` has refused rows in which it has none."""
        found: NDArray[np.float64] = block.groups[self._column]
        return found


def table_policy(columns: PolicyColumns, problem: Problem) -> TablePolicy | TableActions:
    """A policy in columns of a table as a target."""
    if not columns.actions and problem.actions.measure == "lebesgue":
        return TableActions(columns)
    return TablePolicy(columns, problem)


class TableLog:
    """A table as a log to evaluate policies on.

    Args:
        place: Path or URL of the table.
        columns: Which column is what.
        problem: Problem that was decided, if there is a definition. Inferred from the table if left out: actions are
            the values of the action column, or a number if `columns.is_density`; features are those of
            `columns.context`.
        interval: Smallest and largest number of an inferred problem; those of the action column where None.
        reward: Range of rewards of an inferred problem; bounded intervals need one.
        targets: Policies in columns of the table.
        actions: Number of actions that a policy in a file has; its columns are then 0, 1, 2 and so on if actions are
            integers.
        position: Column of the position that an action was shown at, such as a slot of a page. Each position is a
            category of the context of an inferred problem.
        by: Columns to evaluate segments by.
        skip: Leave out rows that do not fit, instead of refusing the table.
        since: First moment to include; microseconds since 1970.
        until: First moment to exclude; microseconds since 1970.
        table: Rows of the table, if columns were added to them.
        on_progress: Called with the rows read so far and the total.

    Attributes:
        counts: Number of used rows of each action of a list.
        left_out: Number of rows that are not used: ``"unfit"``, or ``"outside"`` of the time.
        unfit: Number of rows that do not fit, by reason.
        span: Times of the first and the last row; microseconds since 1970.
    """

    def __init__(
        self,
        place: str,
        columns: Columns,
        *,
        problem: Problem | None = None,
        reward: Reward | None = None,
        interval: tuple[float | None, float | None] = (None, None),
        targets: Sequence[PolicyColumns] = (),
        actions: int | None = None,
        position: str | None = None,
        by: Sequence[str] = (),
        skip: bool = False,
        since: int | None = None,
        until: int | None = None,
        table: pl.LazyFrame | None = None,
        on_progress: Progress | None = None,
    ) -> None:
        self.place, self._columns, self._targets = place, columns, tuple(targets)
        self._on_progress, self._actions, self._position = on_progress, actions, position
        self._carried = tuple(dict.fromkeys([*by, *(name for target in targets for name in target.columns)]))
        self._table = tables.scan_table(place) if table is None else table
        self._check(problem, by)
        if position is not None and problem is None:
            self._table = self._table.with_columns(pl.col(position).cast(pl.String))
        self._outside = self._outside_of(since, until)
        self.problem: Problem = problem or self._inferred(reward or Reward(), interval)
        self._way_out = "Correct these rows, or leave them out with --skip-unfit"
        if problem is None and columns.is_density:
            self._way_out += "; --low and --high state a wider interval"
        tables.check_propensity(columns, self.problem, place)
        self.span: tuple[int, int] | None = None
        self.counts: Counter[str] = Counter()
        self.unfit: Counter[str] = Counter()
        self.left_out: Mapping[str, int] = self._validate(skip=skip)
        if isinstance(columns.propensity, float) and self.counts and isinstance(self.problem.actions, NamedActions):
            tables.check_constant_propensity(columns.propensity, self.counts, place)
        if isinstance(columns.propensity, float) and problem is None and interval == (None, None):
            tables.check_constant_density(columns.propensity, self.problem.actions, place)

    @property
    def total(self) -> int:
        """Number of rows of the table, used or not."""
        return self._total

    def row_numbers(self) -> NDArray[np.int64] | None:
        """Numbers of the used rows in the table, int64[N]; None if all are used."""
        return self._column(pl.col(ROW)).to_numpy().astype(np.int64) if self.left_out else None

    def positions(self) -> tuple[list[str], NDArray[np.int64]]:
        """Positions in natural order, and the place of each used row's position among them, int64[N]."""
        if self._position is None:
            return [], np.zeros(len(self), np.int64)
        found = collected(self._table.select(pl.col(self._position).cast(pl.String).unique()), self.place)
        names = sorted(found.to_series().drop_nulls().to_list(), key=tables.natural)
        column = self._column(pl.col(carried(self._position)).cast(pl.String))
        return names, column.replace_strict(names, range(len(names)), return_dtype=pl.Int64).to_numpy()

    def _column(self, wanted: pl.Expr) -> pl.Series:
        """A column of the used rows."""
        used = (
            collected(self._rules.rows(rows), self.place).filter(FITS, ~self._outside) for _, rows in self._slices()
        )
        return pl.concat([frame.select(wanted) for frame in used]).to_series()

    def __len__(self) -> int:
        return self._total - sum(self.left_out.values())

    def blocks(self) -> Iterator[Block]:
        """The rows that fit, in the table's order."""
        for done, rows in self._slices():
            used = collected(self._rules.rows(rows), self.place).filter(FITS, ~self._outside)
            if len(used):
                yield self._block(used)
            if self._on_progress is not None:
                self._on_progress(done, self._total)

    @cached_property
    def _total(self) -> int:
        return int(collected(self._table.select(pl.len()), self.place).item())

    def _check(self, problem: Problem | None, by: Sequence[str]) -> None:
        present = columns_of(self._table, self.place)
        features = tables.feature_columns(problem, self._columns, present) if problem else {}
        needed = [("a policy that needs no such feature", name) for name in features.values() if name is not None]
        position = [] if self._position is None else [("--position", self._position)]
        others = [*position, *(("--by", name) for name in by), *needed]
        tables.check_columns(present, self._columns, others, self.place)
        stated = [name for target in self._targets for name in target.columns]
        tables.check_context(self._columns, stated, self.place)
        if not self._total:
            raise InvalidLog(f"{self.place}: it has no rows")

    def _inferred(self, reward: Reward, interval: tuple[float | None, float | None]) -> Problem:
        position = [] if self._position is None else [self._position]
        context = list(dict.fromkeys([*self._columns.context, *position]))
        features = tables.features_in(self._table, context, self.place)
        actions = (
            tables.number_in(self._table, self._columns.action, interval, self.place)
            if self._columns.is_density
            else Discrete(self._names())
        )
        return Problem(name=self.place, context=features, actions=actions, reward=reward)

    def _names(self) -> list[str]:
        naming = [self._columns.action, *(target.name for target in self._targets if not target.actions)]
        stated = [action for target in self._targets for action in target.actions]
        return self._numbered(tables.actions_in(self._table, naming, stated, self.place))

    def _numbered(self, names: list[str]) -> list[str]:
        """The actions that a policy in a file has: as many as in the table, or all integers below their number."""
        if self._actions is None or len(names) == self._actions:
            return names
        every = [str(k) for k in range(self._actions)]
        if not set(names) <= set(every):
            raise InvalidLog(
                f"{self.place}: the array has {self._actions} actions, but column {self._columns.action!r} has "
                f"{len(names)}: {', '.join(names[:5])}, …; there must be a column of the array for each, in this order"
            )
        return every

    def _outside_of(self, since: int | None, until: int | None) -> pl.Expr:
        outside = pl.lit(value=False)
        if (since, until) != (None, None) and self._columns.time is None:
            raise InvalidLog(f"{self.place}: name the column that says when a row was with --time")
        time = pl.col("time").dt.epoch("us")
        outside = outside if since is None else outside | (time < since)
        return outside if until is None else outside | (time >= until)

    @cached_property
    def _rules(self) -> RowRules:
        columns, problem, schema = self._columns, self.problem, self._table.collect_schema()
        assert columns.propensity is not None
        rules = tables.decision_rules(problem, columns, schema, self.place)
        rules += [rule for target in self._targets for rule in target.rules(problem)]
        checked = {name for target in self._targets for name in target.columns}
        return RowRules(rules, {carried(name): name for name in self._carried if name not in checked})

    def _slices(self) -> Iterator[tuple[int, pl.LazyFrame]]:
        """All rows with their numbers, and how many have been read after each slice."""
        for at in range(0, self._total, ROWS):
            yield min(at + ROWS, self._total), self._table.slice(at, ROWS).with_row_index(ROW, offset=at)

    def _validate(self, *, skip: bool) -> dict[str, int]:
        """Check every row once: the number of rows left out, by reason. Raise if rows do not fit, unless skipped."""
        unfit: list[tuple[int, str]] = []
        count = outside = 0
        for _, rows in self._slices():
            checked = collected(self._rules.rows(rows), self.place)
            fitting = checked.filter(FITS)
            if len(fitting) < len(checked):
                unfit += collected(self._rules.unfit(rows).head(NAMED), self.place).rows()
                self.unfit.update(dict(collected(self._rules.reasons(rows), self.place).rows()))
            used = fitting.filter(~self._outside)
            count, outside = count + len(checked) - len(fitting), outside + len(fitting) - len(used)
            self._widen_span(used)
            if isinstance(self.problem.actions, FiniteSpace):
                self.counts.update(dict(used["action"].cast(pl.String).value_counts().rows()))
        if count and not skip:
            raise InvalidLog(f"{tables.refusal(self.place, unfit, count)} {self._way_out}")
        if count and count == self._total:
            raise InvalidLog(f"{self.place}: none of its {count:,} rows fits: {tables.first_reasons(unfit)}")
        return {why: rows for why, rows in (("unfit", count), ("outside", outside)) if rows}

    def _widen_span(self, used: pl.DataFrame) -> None:
        if self._columns.time and len(used):
            times = used["time"].dt.epoch("us").to_numpy()
            first, last = self.span or (times[0], times[0])
            self.span = min(first, int(times.min())), max(last, int(times.max()))

    def _block(self, frame: pl.DataFrame) -> Block:
        return Block(
            contexts=tables.encode_contexts(frame, self.problem),
            actions=lake_columns(self.problem.actions).actions(frame["action"]),
            rewards=frame["reward"].to_numpy(),
            propensities=frame["propensity"].to_numpy(),
            times=frame["time"].dt.epoch("us").to_numpy() if self._columns.time else None,
            groups={name: raw_values(frame[carried(name)]) for name in self._carried},
        )


def table_contexts(place: str, problem: Problem, at_most: int) -> NDArray[np.float32]:
    """Encoded contexts of a table's last rows, float32[N, d]; columns are called as the features are."""
    table = tables.scan_table(place)
    first = max(collected(table.select(pl.len()), place).item() - at_most, 0)
    text = tables.is_text(place)
    return tables.checked_contexts(table.slice(first), problem, place, text=text, first_row=first, error=InvalidLog)


def columns_of(table: pl.LazyFrame, place: str) -> pl.Schema:
    """Names and types of a table's columns; `UnreadableTable` if it cannot be read."""
    return collected(table.head(0), place).schema
