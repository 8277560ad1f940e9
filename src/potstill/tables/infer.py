"""Features and actions inferred from a table: scaled numbers, one-hot strings, parts of times."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

import numpy as np
import polars as pl

from potstill.errors import InvalidLog, InvalidProblem
from potstill.problem import RFC_3339, Boolean, Categorical, Feature, Numeric, Part, Timestamp
from potstill.spaces import Continuous
from potstill.tables.scan import collected

#: Strings with more different values than this are more likely identifiers than categories.
MOST_VALUES = 64
#: More different values than this are hardly actions.
MOST_ACTIONS = 1_000
#: Strings that tell what a column of many different ones is; words of most of them, if it is text.
_SAMPLE, _WORDS = 1_000, 3


def features_of(
    table: pl.DataFrame, wanted: Sequence[str | Feature] | None, *, target: str, without: Collection[str] = ()
) -> list[Feature]:
    """Features of a table: the wanted columns by name, or as given; all but the target if none are named.

    Args:
        table: The rows.
        wanted: Columns, or features of them.
        target: Column that is to be predicted.
        without: Columns to leave out.
    """
    columns = table.columns if wanted is None else wanted
    chosen = [one for one in columns if _name(one) not in without and (wanted is not None or one != target)]
    if not chosen:
        raise InvalidProblem(f"there are no features: there is no column but {target!r}")
    names = [_name(one) for one in chosen]
    if target in names:
        raise InvalidProblem(f"feature {target!r} is what is to be predicted; leave it out of the features")
    if unknown := [name for name in [*names, *without] if name not in table.columns]:
        raise InvalidProblem(f"feature {unknown[0]!r} is not a column; the columns are {', '.join(table.columns)}")
    return [feature_of(table[one]) if isinstance(one, str) else one for one in chosen]


def feature_of(column: pl.Series) -> Feature:
    """The feature that a column's type and values call for. A column with missing values gets a flag for them."""
    if column.null_count() == len(column):
        raise InvalidProblem(f"column {column.name!r} has no values; leave it out with features=[...]")
    missing = column.null_count() > 0
    if column.dtype == pl.Boolean:
        return Boolean(column.name, missing="flag" if missing else "error")
    if column.dtype.is_numeric():
        low, high = _range(column.cast(pl.Float64))
        return Numeric(column.name, low=low, high=high, missing="flag" if missing else "error")
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        return _category(column.cast(pl.String))
    if _is_moment(column.dtype):
        of_a_date: list[Part] = ["weekday", "year"]
        parts = of_a_date if column.dtype == pl.Date else ["day", *of_a_date]
        return Timestamp(column.name, parts, missing="flag" if missing else "error")
    raise InvalidProblem(
        f"column {column.name!r} holds {column.dtype}, and only numbers, strings, booleans and times can be features;"
        " convert it, or leave it out with features=[...]"
    )


def actions_in(table: pl.LazyFrame, names: Sequence[str], known: Iterable[str], where: str) -> list[str]:
    """The actions that columns name, and those that are known, in natural order."""
    found = set(known)
    for name in names:
        column = pl.col(name)
        if table.collect_schema()[name].is_float():
            column = column.fill_nan(None)  # a missing value as pandas has it
        names_of = column.cast(pl.String)
        values = collected(table.select(names_of.filter(names_of != "").unique()), where)
        if len(values) > MOST_ACTIONS:
            raise InvalidLog(
                f"{where}: column {name!r} has {len(values):,} different values; does it name actions? If the action "
                "is a number, name the column of its density with --density"
            )
        found.update(values[name].to_list())
    if len(found) < 2:
        raise InvalidLog(
            f"{where}: column {names[0]!r} always says {', '.join(map(repr, sorted(found))) or 'nothing'}; with one "
            "action there is nothing to compare"
        )
    return sorted(found, key=natural)


def number_in(table: pl.LazyFrame, name: str, interval: tuple[float | None, float | None], where: str) -> Continuous:
    """The number that a column holds: from its smallest to its largest value, unless the interval states the end."""
    column = pl.col(name).cast(pl.Float64, strict=False)
    finite = column.filter(column.is_finite())  # rows with other values are refused one by one
    ends = collected(table.select(finite.min().alias("low"), finite.max().alias("high")), where).row(0)
    if ends[0] is None and None in interval:
        raise InvalidLog(
            f"{where}: column {name!r} holds no numbers; name the action with --action, or leave out --density"
        )
    low, high = (end if stated is None else stated for stated, end in zip(interval, ends, strict=True))
    if low == high and interval == (None, None):
        raise InvalidLog(f"{where}: column {name!r} is always {low:g}; with one action there is nothing to compare")
    try:
        return Continuous(name, low, high)
    except InvalidProblem as error:
        raise InvalidLog(f"{where}: {error}; state the interval with --low and --high") from error


def natural(name: str) -> tuple[list[tuple[bool, int, str]], str]:
    """A key that sorts numbers within names by value: a2 before a10."""
    pieces = re.split(r"([0-9]+)", name)
    return [(not piece.isdecimal(), int(piece) if piece.isdecimal() else 0, piece) for piece in pieces if piece], name


def features_in(table: pl.LazyFrame, names: Sequence[str], where: str) -> list[Feature]:
    """The features that columns of a table call for, in one pass over all its rows."""
    if not names:
        return []
    schema = table.collect_schema()
    wanted = [_digest(name, schema[name]).alias(name) for name in names]
    digests = collected(table.select(wanted), where)
    return [_feature(digests[name].explode(empty_as_null=True), where) for name in names]


def _name(feature: str | Feature) -> str:
    return feature if isinstance(feature, str) else feature.name


def _category(column: pl.Series) -> Categorical:
    values = sorted(value for value in column.drop_nulls().unique() if value)  # an empty string is an unknown value
    if not values:
        raise InvalidProblem(f"column {column.name!r} has no values; leave it out with features=[...]")
    if len(values) > MOST_VALUES:
        raise InvalidProblem(
            f"column {column.name!r} has {len(values)} different values, more than {MOST_VALUES}; leave it out with"
            f" features=[...], or in Python pass a {_instead(values)}, or a Categorical with the values that matter:"
            " others share a column"
        )
    return Categorical(column.name, values)


def _instead(values: Sequence[str]) -> str:
    """The type of feature that suits many different strings: moments, several words each, or names of things."""
    some = pl.Series(values[:_SAMPLE], dtype=pl.String)
    if some.str.contains(f"^(?:{RFC_3339})$").all():
        return "Timestamp"
    worded = (some.str.count_matches(r"\S+") >= _WORDS).sum()
    return "Text" if worded > len(some) / 2 else "Hashed"


def _range(column: pl.Series) -> tuple[float, float]:
    values = column.drop_nulls().to_numpy()
    if not np.isfinite(values).all():
        raise InvalidProblem(
            f"column {column.name!r} holds NaN or an infinite number; replace it by null where it means a missing"
            " value, or leave the column out"
        )
    low, high = float(values.min()), float(values.max())
    # A column that never changes says nothing; it stays, as 0, so that the columns are the table's.
    return low, high if high > low else low + max(1.0, abs(low))


def _is_moment(dtype: pl.DataType) -> bool:
    return dtype == pl.Date or isinstance(dtype, pl.Datetime)


def _digest(name: str, dtype: pl.DataType) -> pl.Expr:
    """Values that decide what feature a column is: the ends of its range, and whether some are missing."""
    column = pl.col(name)
    if _is_moment(dtype):
        return pl.concat_list(column.min(), pl.when(column.null_count() == 0).then(column.min()))
    if not dtype.is_numeric():
        return column.unique().implode()
    number = column.cast(pl.Float64)
    low, high = number.fill_nan(None).min(), number.fill_nan(None).max()  # rows with NaN are refused one by one
    return pl.concat_list(low, high, pl.when(number.null_count() == 0).then(low))


def _feature(digest: pl.Series, where: str) -> Feature:
    if len(digest) > MOST_VALUES + 1:
        raise InvalidLog(
            f"{where}: column {digest.name!r} has {len(digest):,} different values, more than {MOST_VALUES}; "
            f"leave it out of --context, or state the problem with a {_instead(digest.drop_nulls().to_list())} feature"
        )
    try:
        return feature_of(digest)
    except InvalidProblem as error:
        raise InvalidLog(f"{where}: {error}".replace("with features=[...]", "of --context")) from error
