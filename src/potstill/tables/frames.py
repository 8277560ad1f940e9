"""Tables in memory as problems and observations: of Polars, pandas, Arrow, and relations of DuckDB."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import polars as pl

from potstill.errors import InvalidObservation, check_distinct, shown
from potstill.problem import Observations, Problem
from potstill.spaces import NamedActions, lake_columns
from potstill.tables.columns import Columns, check_columns, check_constant_propensity, feature_columns
from potstill.tables.encode import encode_contexts
from potstill.tables.scan import ROW, UnreadableTable, collected, in_one_line, readable, scan_table
from potstill.tables.validate import FITS, NAMED, RowRules, decision_rules, refusal

#: What a table in memory is called in messages.
FRAME = "the table"


def table_of(table: Any) -> tuple[pl.LazyFrame, str]:
    """A table and its name for messages.

    Args:
        table: Path or URL of a table; or a table in memory of Polars, pandas or PyArrow, or anything else with
            ``__arrow_c_stream__``, such as a relation of DuckDB.
    """
    if isinstance(table, (str, os.PathLike)):
        place = os.fspath(table)
        return scan_table(place), place
    if not isinstance(table, pl.LazyFrame):
        table = (table if isinstance(table, pl.DataFrame) else _converted(table)).lazy()
    try:
        return readable(table, FRAME), FRAME
    except pl.exceptions.PolarsError as error:
        raise UnreadableTable(f"{FRAME} cannot be read: {in_one_line(error)}") from error


def _converted(table: Any) -> pl.DataFrame:
    if type(table).__module__.partition(".")[0] == "pandas" and hasattr(table, "columns"):
        names = [str(name) for name in table.columns]
        check_distinct(names, f"{FRAME}: column", UnreadableTable)
        return pl.DataFrame({name: _column(table.iloc[:, place], name) for place, name in enumerate(names)})
    if hasattr(table, "__arrow_c_stream__") and not isinstance(table, pl.Series):
        try:
            return pl.DataFrame(table)
        except (pl.exceptions.PolarsError, ImportError, TypeError, ValueError) as error:
            raise UnreadableTable(f"{FRAME} cannot be read: {in_one_line(error)}") from error
    raise UnreadableTable(f"a table is a path, or a frame of Polars, pandas or Arrow, got {shown(table)}")


def _column(column: Any, name: str) -> pl.Series:
    """A column of pandas; Polars itself needs PyArrow for strings and missing values."""
    try:
        if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iufb":
            return pl.Series(column.to_numpy(), nan_to_null=True)  # pandas writes a missing number as NaN
        if isinstance(column.dtype, np.dtype) and column.dtype.kind == "M":
            return pl.Series(column.to_numpy())
        return pl.Series(column.astype(object).where(column.notna(), None).to_list())
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        raise UnreadableTable(
            f"{FRAME}: column {name!r} cannot be read: {in_one_line(error)}; convert it to one type, or drop it"
        ) from error


def observations_of(problem: Problem, table: Any, columns: Columns, *, skip: bool = False) -> Observations:
    """The rows of a table as observations.

    Args:
        problem: The problem.
        table: Path or URL of a table, or a table in memory; see `table_of`.
        columns: Which column is what.
        skip: Leave out rows that do not fit, instead of refusing the table.
    """
    scanned, where = table_of(table)
    if columns.propensity is None:
        raise InvalidObservation(
            f"{where}: observations need the probability of each action; name its column, or one number if it was "
            "always the same. potstill.evaluate.estimate_propensities estimates it"
        )
    schema = scanned.collect_schema()
    features = feature_columns(problem, columns, schema.names())
    needed = [(f"features[{feature!r}]", name) for feature, name in features.items() if name is not None]
    check_columns(schema, columns, needed, where, InvalidObservation)
    rules, numbered = RowRules(decision_rules(problem, columns, schema, where)), scanned.with_row_index(ROW)
    rows = collected(rules.rows(numbered), where)
    fitting = rows.filter(FITS)
    if len(fitting) < len(rows) and not skip:
        unfit = collected(rules.unfit(numbered).head(NAMED), where).rows()
        way_out = "Correct these rows, or leave them out with skip=True"
        raise InvalidObservation(f"{refusal(where, unfit, len(rows) - len(fitting))} {way_out}")
    if isinstance(columns.propensity, float) and isinstance(problem.actions, NamedActions) and len(fitting):
        counts = dict(fitting["action"].value_counts().rows())
        check_constant_propensity(columns.propensity, counts, where, InvalidObservation)
    return Observations(
        problem,
        encode_contexts(fitting, problem),
        lake_columns(problem.actions).actions(fitting["action"]),
        fitting["reward"].to_numpy(),
        fitting["propensity"].to_numpy().astype(np.float32),
    )
