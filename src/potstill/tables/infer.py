"""What the columns of a table become: numbers are scaled over their range, strings are one-hot, booleans 0 and 1."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.problem import Boolean, Categorical, Feature, Numeric

#: Strings with more different values than this are more likely names than kinds.
MOST_VALUES = 64


def features_of(
    table: pl.DataFrame, wanted: Sequence[str | Feature] | None, *, target: str, without: Collection[str] = ()
) -> list[Feature]:
    """The features of a table: each wanted column by name, or as given; if none are named, all but the target.

    Args:
        table: the rows.
        wanted: columns, or features of them.
        target: the column that is to be found out.
        without: columns to leave out.
    """
    columns = table.columns if wanted is None else wanted
    chosen = [one for one in columns if _name(one) not in without and (wanted is not None or one != target)]
    if not chosen:
        raise ValueError(f"there are no features: there is no column but {target!r}")
    names = [_name(one) for one in chosen]
    if target in names:
        raise ValueError(f"feature {target!r} is what has to be found out; leave it out of the features")
    if unknown := [name for name in [*names, *without] if name not in table.columns]:
        raise ValueError(f"feature {unknown[0]!r} is not a column; the columns are {', '.join(table.columns)}")
    return [feature_of(table[one]) if isinstance(one, str) else one for one in chosen]


def _name(feature: str | Feature) -> str:
    return feature if isinstance(feature, str) else feature.name


def feature_of(column: pl.Series) -> Feature:
    """The feature that a column's type and values ask for. A column with missing values gets a flag for them."""
    if column.null_count() == len(column) or (column := tidy(column)).null_count() == len(column):
        raise ValueError(f"column {column.name!r} has no values; leave it out with features=[...]")
    missing = column.null_count() > 0
    if column.dtype == pl.Boolean:
        return Boolean(column.name, missing="flag" if missing else "error")
    if column.dtype == pl.Float64:
        low, high = _range(column)
        return Numeric(column.name, low=low, high=high, missing="flag" if missing else "error")
    values = sorted(column.drop_nulls().unique())
    if len(values) > MOST_VALUES:
        raise ValueError(
            f"column {column.name!r} has {len(values)} different values, more than {MOST_VALUES}; leave it out with"
            " features=[...], or in Python pass a Categorical with the values that matter: others share a column"
        )
    return Categorical(column.name, values)


def column_of(column: pl.Series, feature: Feature) -> NDArray[Any] | list[Any]:
    """A column's values as the encoder takes them: an array if there are no missing ones, else a list with None."""
    column = tidy(column)
    if column.null_count():
        return column.to_list()
    return column.to_numpy().astype(str) if isinstance(feature, Categorical) else column.to_numpy()


def tidy(column: pl.Series) -> pl.Series:
    """A column as booleans, float64 or strings; NaN and empty strings are missing."""
    dtype = column.dtype
    if dtype == pl.Boolean:
        return column
    if dtype.is_numeric():
        return column.cast(pl.Float64).fill_nan(None)
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        strings = column.cast(pl.String)
        return strings.set(strings == "", None)
    raise ValueError(
        f"column {column.name!r} holds {dtype}, and only numbers, strings and booleans can be features;"
        " convert it, or leave it out with features=[...]"
    )


def in_one_line(error: Exception) -> str:
    """The first line of a message."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _range(column: pl.Series) -> tuple[float, float]:
    values = column.drop_nulls().to_numpy()
    if not np.isfinite(values).all():
        raise ValueError(f"column {column.name!r} holds an infinite number; replace it, or leave the column out")
    low, high = float(values.min()), float(values.max())
    # A column that never changes says nothing; it stays, as 0, so that the columns are the table's.
    return low, high if high > low else low + max(1.0, abs(low))
