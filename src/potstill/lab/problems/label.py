"""Which column of a table is the label, where nobody said."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import polars as pl

from potstill.errors import LabError

#: Names that a label often has, in lower case.
NAMES = ("label", "target", "class", "y")
#: Most different values of a label: of names, and of whole numbers, which could also be amounts.
MOST_NAMES, MOST_NUMBERS = 100, 30
#: Fewest rows for each different value: an identifier has about one.
LEAST_ROWS = 5


class Label(msgspec.Struct, frozen=True):
    """The column of the label, and why it was taken."""

    column: str
    why: str


def label_of(table: pl.DataFrame) -> Label:
    """The label of a table: a column by its name, else the only column of names, else the last or the first column.

    It must have few different values. `LabError` if no column fits, or if several do.
    """
    named = [name for name in table.columns if name.lower() in NAMES]
    if named:
        return Label(_one(table, named), "by its name")
    words = [name for name in table.columns if not table[name].dtype.is_numeric() and _is_class(table[name])]
    if len(words) == 1:
        return Label(words[0], "the only column of names")
    for place, name in (("last", table.columns[-1]), ("first", table.columns[0])):
        if _is_class(table[name]):
            return Label(name, f"the {place} column, with {_values(table[name])} values")
    raise LabError(
        f"no column is clearly the label: none is called {_or(NAMES)}, {len(words) or 'none'} hold names with few "
        f"different values, and neither the last ({table.columns[-1]!r}) nor the first ({table.columns[0]!r}) has few"
    )


def _one(table: pl.DataFrame, named: Sequence[str]) -> str:
    fit = [name for name in named if _is_class(table[name])]
    if len(fit) == 1:
        return fit[0]
    if fit:
        raise LabError(f"{' and '.join(fit)} could all be the label")
    raise LabError(
        f"column {named[0]!r} is called like a label and holds {_values(table[named[0]]):,} different values of type "
        f"{table[named[0]].dtype} in {len(table):,} rows"
    )


def _is_class(column: pl.Series) -> bool:
    """Whether a column has few different values, and whole ones if they are numbers."""
    values, numeric = _values(column), column.dtype.is_numeric()
    if values < 2 or values > (MOST_NUMBERS if numeric else MOST_NAMES) or values * LEAST_ROWS > len(column):
        return False
    return not column.dtype.is_float() or bool((column.drop_nulls() % 1 == 0).all())


def _values(column: pl.Series) -> int:
    return column.drop_nulls().n_unique()


def _or(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"
