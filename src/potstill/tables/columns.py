"""Someone else's table as a log: which column is what, and what actions and features its columns hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import polars as pl

from potstill.errors import InvalidLog
from potstill.problem import Boolean, Categorical, Feature, Numeric, Problem
from potstill.tables.infer import MOST_VALUES, feature_of

#: More different values than this are hardly actions.
MOST_ACTIONS = 1_000


#: How far the probabilities of a row may be from adding up to one: float32 over many actions.
TOLERANCE = 1e-4
CONTEXT = "context_"
#: Moments are microseconds since 1970, UTC.
TIME = pl.Datetime("us", "UTC")
_TYPES: Mapping[type[Feature], pl.DataType] = {
    Numeric: pl.Float64(),
    Categorical: pl.String(),
    Boolean: pl.Boolean(),
}


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Which column of a table is what.

    Attributes:
        action: what was done.
        reward: what came of it.
        propensity: the probability with which it was done; or that probability itself, where it was always the same.
        time: when; None if that is not known, and rows are then taken to be in order.
        context: what was known before the decision. Reward models use it, so that intervals get narrower; leave out
            what was known only afterwards.
    """

    action: str = "action"
    reward: str = "reward"
    propensity: str | float = "propensity"
    time: str | None = None
    context: tuple[str, ...] = ()


def check_columns(there: Sequence[str], columns: Columns, others: Iterable[tuple[str, str]], where: str) -> None:
    """Refuse columns that a table does not have; `others` are pairs of an option and a column that it names."""
    for option, name in [*_roles(columns), *(("--context", name) for name in columns.context), *others]:
        if name not in there:
            raise InvalidLog(
                f"{where}: there is no column {name!r}; name the right one with {option}. "
                f"The columns are {', '.join(there)}"
            )


def check_context(columns: Columns, stated: Iterable[str], where: str) -> None:
    """Refuse a context that holds what was done, what came of it, or one of the `stated` columns of policies."""
    taken = {**dict.fromkeys(stated, "a policy's column"), **{name: option for option, name in _roles(columns)}}
    for name in columns.context:
        if name in taken:
            raise InvalidLog(
                f"{where}: column {name!r} is {taken[name]} already; a context is what was known before the decision. "
                "Leave it out of --context"
            )


def check_propensity(propensity: str | float) -> None:
    """Refuse a propensity of all rows that is no probability."""
    if not isinstance(propensity, str) and not 0 < propensity <= 1:
        raise InvalidLog(
            f"--propensity must be a column, or a probability above 0 and at most 1 if it was always the same, got "
            f"{propensity:g}"
        )


def _roles(columns: Columns) -> list[tuple[str, str]]:
    """Options and the columns that they name, without contexts."""
    roles = {
        "--action": columns.action,
        "--reward": columns.reward,
        "--propensity": columns.propensity,
        "--time": columns.time,
    }
    return [(option, name) for option, name in roles.items() if isinstance(name, str)]


def actions_in(table: pl.LazyFrame, names: Sequence[str], known: Iterable[str], where: str) -> list[str]:
    """The actions that columns name, and those that are known, sorted."""
    found = set(known)
    for name in names:
        values = table.select(pl.col(name).cast(pl.String)).unique().drop_nulls().collect(engine="streaming")
        if len(values) > MOST_ACTIONS:
            raise InvalidLog(f"{where}: column {name!r} has {len(values):,} different values; does it name actions?")
        found.update(values[name].to_list())
    if len(found) < 2:
        raise InvalidLog(
            f"{where}: column {names[0]!r} always says {', '.join(map(repr, sorted(found))) or 'nothing'}; with one "
            "action there is nothing to compare"
        )
    return sorted(found)


def features_in(table: pl.LazyFrame, names: Sequence[str], where: str) -> list[Feature]:
    """The features that a table's columns make, over all its rows; the table is gone through once."""
    if not names:
        return []
    schema = table.collect_schema()
    wanted = [_digest(name, schema[name]).alias(name) for name in names]
    digests = table.select(wanted).collect(engine="streaming")
    return [_feature(digests[name].explode(empty_as_null=True), where) for name in names]


def _digest(name: str, dtype: pl.DataType) -> pl.Expr:
    """The values that decide what feature a column is: the ends of its range, and whether some are missing."""
    column = pl.col(name)
    if not dtype.is_numeric():
        return column.unique().implode()
    number = column.cast(pl.Float64).fill_nan(None)
    missing = pl.when(number.null_count() == 0).then(number.min())
    return pl.concat_list(number.min(), number.max(), missing)


def _feature(digest: pl.Series, where: str) -> Feature:
    if len(digest) > MOST_VALUES + 1:
        raise InvalidLog(
            f"{where}: column {digest.name!r} has {len(digest):,} different values, more than {MOST_VALUES}; "
            "leave it out of --context"
        )
    try:
        return feature_of(digest)
    except ValueError as error:
        raise InvalidLog(f"{where}: {error}".replace("with features=[...]", "of --context")) from error


@dataclass(frozen=True)
class Stated:
    """A policy in the columns of a table.

    Attributes:
        name: of the column that names the action in each row; or what columns of probabilities begin with.
        columns: that it is read from: the one, or one for each of `actions`.
        actions: those of which there is a column of probabilities; empty if a column names the action.
    """

    name: str
    columns: tuple[str, ...]
    actions: tuple[str, ...] = ()

    @classmethod
    def action(cls, column: str, there: Sequence[str]) -> Stated:
        """By a column that names the action in each row."""
        if column not in there:
            raise InvalidLog(f"there is no column {column!r}; the columns are {', '.join(there)}")
        return cls(column, (column,))

    @classmethod
    def probabilities(cls, prefix: str, there: Sequence[str]) -> Stated:
        """By columns of probabilities, each called as a prefix and its action."""
        columns = tuple(name for name in there if name.startswith(prefix) and name != prefix)
        if len(columns) < 2:
            raise InvalidLog(
                f"there must be a column {prefix}ACTION for each action, with the probability that it would have had; "
                f"the columns are {', '.join(there)}"
            )
        return cls(prefix, columns, tuple(name.removeprefix(prefix) for name in columns))

    def without(self, problem: Problem) -> list[str]:
        """The actions that have no column of probabilities, and are therefore never taken."""
        return [name for name in problem.actions.names if self.actions and name not in self.actions]


def context_schema(problem: Problem) -> dict[str, pl.DataType]:
    """The columns of a problem's features, in their order."""
    return {context_column(feature.name): _TYPES[type(feature)] for feature in problem.context}


def context_column(feature: str) -> str:
    """The column that holds a feature's values, as they were sent."""
    return CONTEXT + feature
