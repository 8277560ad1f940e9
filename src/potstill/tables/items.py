"""Tables of items: a column of ids, and one for each feature of a catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import polars as pl

from potstill.errors import InvalidProblem
from potstill.problem import Discrete, Feature, Problem
from potstill.tables.columns import Columns, context_column, feature_columns
from potstill.tables.scan import ROW, UnreadableTable, in_one_line, is_text, scan_table
from potstill.tables.validate import FITS, NAMED, RowRules, context_rules, item_rule, refusal

#: Column of the ids.
ID = "id"


class ItemRows(NamedTuple):
    """Items of a table.

    Attributes:
        items: Those that fit: their ids, and the values of features.
        unfit: Numbers of the rows that were left out, and why.
    """

    items: list[dict[str, Any]]
    unfit: list[tuple[int, str]]


def read_items(place: str, features: Sequence[Feature], *, skip: bool = False) -> ItemRows:
    """Items of a table; columns that are no features are ignored.

    Args:
        place: Path or address of the table.
        features: Features of items.
        skip: Whether rows that do not fit are left out. Otherwise they are refused.

    Raises:
        UnreadableTable: The table cannot be read.
        InvalidProblem: It lacks a column, or has rows that do not fit.
    """
    table = scan_table(place)
    # Features of items follow the rule of features of contexts, as those of a problem with the same features.
    like = Problem(name="items", context=features, actions=Discrete(["one", "other"]))
    try:
        schema = table.collect_schema()
        columns = feature_columns(like, Columns(), schema.names())
        for name in (ID, *(column for column in columns.values() if column is not None)):
            if name not in schema:
                what = "each item needs one" if name == ID else "which is a feature of items"
                raise InvalidProblem(f"{place}: there is no column {name!r}, {what}")
        rules = RowRules([item_rule(ID), *context_rules(like, columns, schema, text=is_text(place))])
        rows = table.with_row_index(ROW)
        unfit = [(int(row), str(reason)) for row, reason in rules.unfit(rows).collect().rows()]
        found = rules.rows(rows).collect()
    except pl.exceptions.PolarsError as error:
        raise UnreadableTable(f"{place}: {in_one_line(error)}") from error
    fitting = found.filter(pl.col(FITS))
    twice = fitting.filter(~pl.col(ID).is_first_distinct()).select(ROW, ID).rows()
    unfit += [(int(row), f"id {name!r} occurs before") for row, name in twice]
    if unfit and not skip:
        message = refusal(place, sorted(unfit)[:NAMED], len(unfit))
        raise InvalidProblem(f"{message} Correct these rows, or leave them out with --skip-unfit")
    names = {context_column(feature.name): feature.name for feature in features}
    values = (pl.col(old).alias(new) for old, new in names.items())
    frame = fitting.filter(pl.col(ID).is_first_distinct()).select(ID, *values)
    items = [{name: value for name, value in row.items() if value is not None} for row in frame.to_dicts()]
    return ItemRows(items, sorted(unfit))
