"""Groups of contexts by the values of a feature: ranges of a number, or its most frequent values."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.problem import Feature

#: Groups of a feature: ranges of a number, or values; the rest is one group.
RANGES, VALUES = 5, 8


def groups(feature: Feature, values: pl.Series) -> list[tuple[str, NDArray[np.bool_]]]:
    """Names of groups and the rows of each; groups without rows, and features that have no groups, are left out."""
    if feature.holds == "numbers":
        return []
    found = _ranges(values) if feature.holds == "number" else _values(values)
    return [(name, chosen) for name, chosen in found if chosen.any()]


def _ranges(values: pl.Series) -> list[tuple[str, NDArray[np.bool_]]]:
    """Ranges of a number with about as many contexts each."""
    known = values.drop_nulls().to_numpy()
    missing = [("missing", values.is_null().to_numpy())]
    if not len(known):
        return missing
    edges = np.unique(np.quantile(known, np.linspace(0, 1, RANGES + 1)))
    if len(edges) == 1:
        edges = np.array([edges[0], edges[0]])
    numbers = values.fill_null(np.nan).to_numpy()
    found = []
    for low, high in pairwise(edges):
        inside = (numbers >= low) & ((numbers < high) | (high == edges[-1]))
        found.append((f"{_short(low)} to {_short(high)}", inside))
    return found + missing


def _values(values: pl.Series) -> list[tuple[str, NDArray[np.bool_]]]:
    """The most frequent values, and all others together."""
    texts = values.cast(pl.String).fill_null("missing")
    counts = texts.value_counts(sort=True)
    frequent = counts[texts.name].head(VALUES).to_list()
    found = [(value, (texts == value).to_numpy()) for value in frequent]
    return [*found, ("other values", (~texts.is_in(frequent)).to_numpy())]


def _short(number: float) -> str:
    return f"{number:,.0f}" if 1000 <= abs(number) < 1e15 else f"{number:.4g}"
