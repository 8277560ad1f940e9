"""Tables as problems: rows are requests, and a column names the right action or amount.

    ClassificationProblem.from_csv("flowers.csv", label="species")
    DoseProblem.from_csv("patients.csv", target="dose_mg", levels=20)

Both are Environments. Features are inferred from the columns (`potstill.tables.infer`). A trial draws rows, and its
contexts are only row numbers, so that each row is encoded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.errors import LabError
from potstill.lab.problems.environment import Columns, Float32, Float64
from potstill.problem import Discrete, Feature, Problem, Reward, inferred_kind
from potstill.tables import checked_contexts, features_of, in_one_line, read_csv

#: Reward of an action on rows of one class: a number, or several equally likely ones.
Outcomes = float | Sequence[float]
#: Rewards by class, then by action.
RewardTable = Mapping[str, Mapping[str, Outcomes]]
#: A label with more distinct values than this is probably an amount.
MOST_CLASSES = 1_000
#: The same for numbers with fractions.
MOST_FRACTIONS = 20


class TableProblem:
    """Rows of a table as requests; subclasses define the rewards.

    Attributes:
        problem: The problem.
        dropped: Number of rows left out because the label or target is missing.
        resample: Whether a trial draws rows with replacement; if not, it uses each at most once, in random order.
    """

    def __init__(self, table: pl.DataFrame, problem: Problem, *, dropped: int, resample: bool) -> None:
        self.problem, self.dropped, self.resample = problem, dropped, resample
        self._rows = np.arange(len(table))
        self._encoded = checked_contexts(table.lazy(), problem, problem.name)

    @property
    def rows(self) -> int:
        """Number of rows to draw from."""
        return len(self._rows)

    def halves(self, rng: np.random.Generator) -> tuple[Self, Self]:
        """Two problems that share no row and use each of their rows at most once."""
        shuffled = rng.permutation(self._rows)
        parts = copy(self), copy(self)
        for part, rows in zip(parts, np.array_split(shuffled, 2), strict=True):
            part._rows, part.resample = rows, False
        return parts

    @classmethod
    def from_csv(cls, path: str | Path, **options: Any) -> Self:
        """The problem of a CSV file with a header row; empty fields and NA are missing. Options are the class's."""
        return cls._of_file(path, read_csv(path), options)

    @classmethod
    def from_parquet(cls, path: str | Path, **options: Any) -> Self:
        """The problem of a Parquet file. Options are the class's."""
        return cls._of_file(path, read_parquet(path), options)

    @classmethod
    def _of_file(cls, path: str | Path, table: pl.DataFrame, options: dict[str, Any]) -> Self:
        try:
            return cls(table, **options)
        except ValueError as error:
            raise LabError(f"{path}: {error}") from error

    @classmethod
    def from_arrow(cls, table: Any, **options: Any) -> Self:
        """The problem of an Arrow table: anything with ``__arrow_c_stream__``, as Polars, PyArrow and pandas have."""
        if not hasattr(table, "__arrow_c_stream__"):
            raise LabError(f"expected an Arrow table, got {type(table).__name__}, which has no __arrow_c_stream__")
        return cls(table if isinstance(table, pl.DataFrame) else pl.DataFrame(table), **options)

    def contexts(self, n: int, rng: np.random.Generator) -> Columns:
        """Numbers of the rows of a trial, as column ``row``, int64[n]."""
        if self.resample:
            return {"row": self._rows[rng.integers(self.rows, size=n)]}
        if n > self.rows:
            raise LabError(
                f"{self.problem.name}: {n} decisions need {n} rows and the table has {self.rows};"
                " ask for fewer, or draw with replacement (resample=True)"
            )
        return {"row": self._rows[rng.permutation(self.rows)[:n]]}

    def encode(self, contexts: Columns) -> Float32:
        """The rows as the problem encodes them, float32[N, d]."""
        encoded: Float32 = self._encoded[contexts["row"]]
        return encoded


class ClassificationProblem(TableProblem):
    """Predict the class of each row: reward 1 if right and 0 if not, or by a table of rewards.

    Args:
        table: The rows.
        label: Column of the class; rows without one are left out.
        features: Columns of the context, by name or as a `Feature`; all but the label by default.
        without: Columns to leave out of the context.
        rewards: Reward of each action on rows of each class: a number, or several that are equally likely, as in
            ``{"edible": {"eat": 5}, "poisonous": {"eat": (5, -35), "abstain": 0}}``. Actions that a class does not
            list earn 0.
        name: Name of the problem.
        resample: Draw rows with replacement; if not, a trial uses each row at most once.
    """

    def __init__(
        self,
        table: pl.DataFrame,
        *,
        label: str,
        features: Sequence[str | Feature] | None = None,
        without: Collection[str] = (),
        rewards: RewardTable | None = None,
        name: str = "classification",
        resample: bool = True,
    ) -> None:
        known = _known(table, label, "label", _classes)
        classes = known[label].unique().sort().to_list()
        _check_classes(classes, table[label])
        actions, self._outcomes = _reward_table(classes, rewards or {c: {c: 1.0} for c in classes})
        problem = Problem(
            name=name,
            context=features_of(known, features, target=label, without=without),
            actions=Discrete(actions),
            reward=_bounds(self._outcomes),
        )
        super().__init__(known, problem, dropped=len(table) - len(known), resample=resample)
        self._classes = known[label].cast(pl.Enum(classes)).to_physical().to_numpy()

    def means(self, contexts: Columns) -> Float64:
        """The expected reward of each action, float64[N, K]."""
        means: Float64 = self._outcomes.mean(axis=2)[self._classes[contexts["row"]]]
        return means

    def rewards(self, contexts: Columns, actions: NDArray[np.integer[Any]], rng: np.random.Generator) -> Float64:
        """One of the outcomes of each action, float64[N]."""
        outcome = rng.integers(self._outcomes.shape[2], size=len(actions))
        rewards: Float64 = self._outcomes[self._classes[contexts["row"]], actions, outcome]
        return rewards


class DoseProblem(TableProblem):
    """Choose a level of a quantity: the reward falls with the distance to the right amount of each row.

    The levels are evenly spaced from `low` to `high`, both included. Level a earns 1 - |a - target| / (high - low),
    with the target clipped to the range of levels, so that rewards lie in [0, 1] and have no noise.

    Args:
        table: The rows.
        target: Column of the right amount, numbers; rows without one are left out.
        levels: Number of levels.
        low: Lowest level; the smallest target by default.
        high: Highest level; the largest target by default.
        features: Columns of the context, by name or as a `Feature`; all but the target by default.
        without: Columns to leave out of the context.
        name: Name of the problem.
        resample: Draw rows with replacement; if not, a trial uses each row at most once.
    """

    def __init__(
        self,
        table: pl.DataFrame,
        *,
        target: str,
        levels: int = 20,
        low: float | None = None,
        high: float | None = None,
        features: Sequence[str | Feature] | None = None,
        without: Collection[str] = (),
        name: str = "dose",
        resample: bool = True,
    ) -> None:
        known, amounts = known_targets(table, target)
        self.levels = _levels(amounts.min() if low is None else low, amounts.max() if high is None else high, levels)
        problem = Problem(
            name=name,
            context=features_of(known, features, target=target, without=without),
            actions=Discrete(_names(self.levels)),
            reward=Reward(low=0.0, high=1.0),
        )
        super().__init__(known, problem, dropped=len(table) - len(known), resample=resample)
        self._targets = np.clip(amounts, self.levels[0], self.levels[-1])

    def means(self, contexts: Columns) -> Float64:
        """The reward of each level, float64[N, K]."""
        return self._reward(self.levels, self._targets[contexts["row"]][:, None])

    def rewards(self, contexts: Columns, actions: NDArray[np.integer[Any]], rng: np.random.Generator) -> Float64:  # noqa: ARG002
        """Reward of each chosen level, float64[N], without noise."""
        return self._reward(self.levels[actions], self._targets[contexts["row"]])

    def _reward(self, level: Float64, target: Float64) -> Float64:
        reward = 1 - np.abs(level - target) / (self.levels[-1] - self.levels[0])
        # Rounding must not exceed the reward bounds of the problem.
        within: Float64 = np.clip(reward, 0, 1)
        return within


def read_parquet(path: str | Path) -> pl.DataFrame:
    """Rows of a Parquet file."""
    try:
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise LabError(f"{path}: cannot be read as Parquet: {in_one_line(error)}") from None


def read_table(path: Path) -> pl.DataFrame:
    """Rows of a CSV or Parquet file."""
    return read_csv(path) if path.suffix.lower() == ".csv" else read_parquet(path)


def known_targets(table: pl.DataFrame, target: str) -> tuple[pl.DataFrame, Float64]:
    """Rows whose target is a number, and these numbers, float64[N]."""
    known = _known(table, target, "target", _numbers)
    return known, known[target].to_numpy()


def _known(table: pl.DataFrame, name: str, what: str, read: Callable[[pl.Series], pl.Series]) -> pl.DataFrame:
    """Rows in which a column has a value, with that column converted by `read`."""
    if name not in table.columns:
        raise LabError(f"{what} {name!r} is not a column of the table; its columns are {', '.join(table.columns)}")
    column = table[name].fill_nan(None) if table[name].dtype.is_float() else table[name]
    known = table.with_columns(read(column).alias(name)).drop_nulls(name)
    if known.is_empty():
        raise LabError(f"{what} {name!r}: no row of the table has a value ({len(table)} rows)")
    return known


def _classes(column: pl.Series) -> pl.Series:
    names = column.cast(pl.String)
    return names.set(names == "", None)


def _check_classes(classes: list[str], column: pl.Series) -> None:
    if len(classes) < 2:
        raise LabError(f"label {column.name!r}: every row is {classes[0]!r}; there is nothing to decide")
    fractions = column.dtype.is_float() and bool((column.drop_nulls() % 1 != 0).any())
    if len(classes) > (most := MOST_FRACTIONS if fractions else MOST_CLASSES):
        raise LabError(
            f"label {column.name!r} has {len(classes):,} classes, more than {most:,}{' fractions' * fractions};"
            " if it is an amount, make it the target (--target) of a DoseProblem"
        )


def _numbers(column: pl.Series) -> pl.Series:
    numeric = column.dtype.is_numeric()
    numbers = column.cast(pl.Float64) if numeric else column.cast(pl.String).cast(pl.Float64, strict=False)
    bad = column.filter(column.is_not_null() & (numbers.is_null() | ~numbers.is_finite()))
    if len(bad):
        raise LabError(f"target {column.name!r} must hold finite numbers, got {bad[0]!r} ({len(bad)} such rows)")
    return numbers


def _names(levels: Float64) -> list[str]:
    short = [f"{level:.6g}" for level in levels]
    return short if len(set(short)) == len(short) else [repr(float(level)) for level in levels]


def _levels(low: float, high: float, count: int) -> Float64:
    if count < 2:
        raise LabError(f"levels must be 2 or more, got {count}")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise LabError(f"levels need low < high, got low={low} and high={high}")
    if not math.isfinite(float(high) - float(low)):
        raise LabError(f"the range of levels, {low} to {high}, overflows a float; rescale the target")
    return np.linspace(low, high, count)


def _reward_table(classes: list[str], rewards: RewardTable) -> tuple[list[str], Float64]:
    """The actions, and their rewards, float64[C, K, M]: M equally likely outcomes for each class and action."""
    if unknown := sorted(set(rewards) ^ set(classes)):
        raise LabError(f"rewards must name each class once: {', '.join(classes)}; check {', '.join(unknown)}")
    actions = list(dict.fromkeys(action for by_action in rewards.values() for action in by_action))
    cells = [[np.atleast_1d(rewards[c].get(a, 0.0)).astype(np.float64) for a in actions] for c in classes]
    if not all(cell.size and np.isfinite(cell).all() for row in cells for cell in row):
        raise LabError("rewards must be finite numbers, one or more for each class and action")
    # A common multiple of the lengths, so that equal chances stay equal.
    count = math.lcm(*(len(cell) for row in cells for cell in row))
    return actions, np.array([[np.resize(cell, count) for cell in row] for row in cells])


def _bounds(outcomes: Float64) -> Reward:
    return Reward(low=float(outcomes.min()), high=float(outcomes.max()), kind=inferred_kind(outcomes.ravel()))
