"""Someone else's table as a log: which column is what, and what actions and features its columns hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import polars as pl

from potstill.evaluate.log import InvalidLog
from potstill.problem import Feature
from potstill.tables.infer import MOST_VALUES, feature_of

#: More different values than this are hardly actions.
MOST_ACTIONS = 1_000


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
