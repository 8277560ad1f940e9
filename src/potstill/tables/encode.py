"""Columns of tables as encoded contexts."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.errors import InvalidContext, PotstillError
from potstill.problem import Categorical, Feature, Problem
from potstill.tables.columns import Columns, context_column, context_type, feature_columns
from potstill.tables.scan import ROW, collected
from potstill.tables.validate import RowRules, context_rules, refusal

#: Stands for unknown and missing values of a category; no category has this value.
_UNSEEN = ""


def encode_contexts(frame: pl.DataFrame, problem: Problem) -> NDArray[np.float32]:
    """Contexts float32[N, d], equal to `Problem.encode` of each row; the rows must fit the problem.

    Missing values are filled before whole columns are encoded, with the feature's own substitute or with a value that
    is encoded as zero. Flags of missing values are set afterwards.
    """
    columns = {feature.name: _column(frame, feature) for feature in problem.context}
    filled = {feature.name: _filled(columns[feature.name], feature) for feature in problem.context}
    contexts = problem.encode_many(filled) if filled else np.zeros((len(frame), 0), np.float32)
    at = 0
    for feature in problem.context:
        at += len(feature.labels)
        if feature.missing == "flag":  # the flag is the feature's last column
            contexts[:, at - 1] = columns[feature.name].is_null().to_numpy()
    return contexts


def _column(frame: pl.DataFrame, feature: Feature) -> pl.Series:
    name = context_column(feature.name)
    if name in frame.columns:
        return frame[name]
    return pl.Series(name, [None], context_type(feature)).new_from_index(0, len(frame))


def _filled(column: pl.Series, feature: Feature) -> NDArray[Any]:
    if isinstance(feature, Categorical):
        places = {value: i for i, value in enumerate(feature.values)}
        unseen = len(places)
        codes = column.replace_strict(places, default=unseen, return_dtype=pl.UInt32).fill_null(unseen)
        # As codes first: an array of strings is as wide as its longest, and an unknown one can be of any length.
        kind = object if any(value.endswith("\0") for value in feature.values) else None
        return np.take(np.array([*feature.values, _UNSEEN], kind), codes.to_numpy())
    if feature.holds == "string" or feature.blank is None:
        return np.array(column.to_list(), dtype=object)  # NumPy's own strings drop trailing NULs
    if feature.missing == "flag":
        column = column.fill_null(pl.lit(feature.blank, column.dtype))
    elif feature.missing != "error":
        column = column.fill_null(feature.missing)
    if feature.holds == "numbers":
        return column.list.to_array(feature.length).to_numpy()
    return column.to_numpy()


def checked_contexts(
    table: pl.LazyFrame,
    problem: Problem,
    where: str,
    *,
    text: bool = False,
    first_row: int = 0,
    error: type[PotstillError] = InvalidContext,
) -> NDArray[np.float32]:
    """Contexts float32[N, d] of a table whose columns are called as the features are; rows that do not fit raise."""
    schema = table.collect_schema()
    columns = feature_columns(problem, Columns(), schema.names())
    for name in columns.values():
        if name is not None and name not in schema:
            raise error(f"{where}: there is no column {name!r}, which is a feature of the problem")
    rules = RowRules(context_rules(problem, columns, schema, text=text))
    rows = table.with_row_index(ROW, offset=first_row)
    unfit = collected(rules.unfit(rows), where)
    if len(unfit):
        raise error(f"{refusal(where, unfit.rows(), len(unfit))} Correct these rows, or remove them from the table")
    return encode_contexts(collected(rules.rows(rows), where), problem)
