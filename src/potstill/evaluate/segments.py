"""Segments of the rows of a log: by the values of a feature, or over time.

`RowGroups` gives each row the number of its segment, and each segment a name.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidOption

#: Maximum number of segments of a feature, and number of quantile ranges of a numeric one.
MOST, PARTS = 12, 5
MISSING, OTHERS = "missing", "others"
_DAY = 86_400_000_000
_EPOCH = date(1970, 1, 1)
#: Monday 29 December 1969 began the week of day 0.
_DAYS_BEFORE = 3

Over = Literal["day", "week"] | int


class RowGroups(NamedTuple):
    """Rows by segment.

    Attributes:
        names: Names of the segments, in display order.
        codes: Segment of each row, int32[N]; -1 for rows in none.
        starts: Start of each segment, if segments are periods of time: microseconds since 1970.
    """

    names: tuple[str, ...]
    codes: NDArray[np.int32]
    starts: tuple[int, ...] = ()


def by_value(values: NDArray[Any]) -> RowGroups:
    """Segments by a feature's values: numbers by quantile, anything else by value, the frequent ones first.

    Names that all hold numbers, such as a2 and a10, are in the order of these.

    Args:
        values: Numbers (NaN is missing), booleans or strings (None and the empty string are missing), one per row.
    """
    if values.dtype.kind in "iuf":
        return _by_number(values.astype(np.float64))
    return _by_name(values)


def over_time(times: NDArray[np.int64], over: Over) -> RowGroups:
    """Periods of time, in order: UTC days, weeks from Monday, or a number of periods with equally many rows.

    Args:
        times: Microseconds since 1970, int64[N].
        over: ``"day"``, ``"week"``, or a number of periods.
    """
    if over == "day" or over == "week":
        return _calendar(times, over)
    if isinstance(over, bool) or not isinstance(over, int) or over < 1:
        raise InvalidOption(f"over must be 'day', 'week' or a number of periods of at least 1, got {over!r}")
    return _equal_parts(times, over)


def _by_number(values: NDArray[np.float64]) -> RowGroups:
    missing = np.isnan(values)
    known = values[~missing]
    distinct = np.unique(known)
    if len(distinct) <= PARTS:  # few enough to be named one by one
        names = [_shown(value) for value in distinct]
        codes = np.searchsorted(distinct, values)
    else:
        edges = np.unique([_round(edge) for edge in np.quantile(known, np.arange(1, PARTS) / PARTS)])
        names = _ranges(edges)
        codes = np.searchsorted(edges, values, side="right")
    return _with_missing(names, codes, missing)


def _ranges(edges: NDArray[np.float64]) -> list[str]:
    """Names of the ranges between edges; an edge belongs to the range above it."""
    shown = [_shown(edge) for edge in edges]
    between = [f"{low} to {high}" for low, high in pairwise(shown)]
    return [f"below {shown[0]}", *between, f"{shown[-1]} and up"]


def _round(number: float) -> float:
    """Round to three digits, so that the edge in the name is the edge in use."""
    return float(f"{number:.3g}")


def _shown(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 1000 and number == int(number) else f"{number:g}"


def _by_name(values: NDArray[Any]) -> RowGroups:
    import polars as pl  # imported here, as numeric features do without it

    said = pl.Series("value", values.tolist(), strict=False)
    if said.dtype == pl.Boolean:
        said = said.replace_strict({True: "yes", False: "no"}, return_dtype=pl.String)
    said = said.cast(pl.String).replace("", None)
    counted = said.drop_nulls().value_counts().sort("count", "value", descending=[True, False])
    found = counted["value"].to_list()
    names = _in_order(found if len(found) <= MOST else found[: MOST - 1])
    codes = said.replace_strict(names, range(len(names)), default=len(names), return_dtype=pl.Int32)
    if len(found) > len(names):
        names = [*names, f"{OTHERS} ({len(found) - len(names)} values)"]
    return _with_missing(names, codes.fill_null(0).to_numpy(), said.is_null().to_numpy())


def _in_order(names: list[str]) -> list[str]:
    from potstill.tables import natural

    return sorted(names, key=natural) if all(re.search("[0-9]", name) for name in names) else names


def _with_missing(names: list[str], codes: NDArray[Any], missing: NDArray[np.bool_]) -> RowGroups:
    """Add a last segment for rows without a value, and drop segments without rows."""
    codes = np.where(missing, len(names), codes).astype(np.int32)
    used = np.flatnonzero(np.bincount(codes, minlength=len(names) + 1))
    places = np.zeros(len(names) + 1, np.int32)
    places[used] = np.arange(len(used))
    return RowGroups(_distinct([[*names, MISSING][i] for i in used]), places[codes])


def _distinct(names: list[str]) -> tuple[str, ...]:
    """Distinct names: a repeated name gets a number."""
    earlier = [names[:i].count(name) for i, name in enumerate(names)]
    return tuple(f"{name} ({count + 1})" if count else name for name, count in zip(names, earlier, strict=True))


def _calendar(times: NDArray[np.int64], over: Literal["day", "week"]) -> RowGroups:
    days = times // _DAY
    if over == "week":
        days -= (days + _DAYS_BEFORE) % 7
    found, codes = np.unique(days, return_inverse=True)
    names = [(_EPOCH + timedelta(days=int(day))).isoformat() for day in found]
    starts = tuple(int(day) * _DAY for day in found)
    return RowGroups(tuple(names), codes.astype(np.int32), starts)


def _equal_parts(times: NDArray[np.int64], parts: int) -> RowGroups:
    order = np.argsort(times, kind="stable")
    parts = min(parts, len(times))
    codes = np.empty(len(times), np.int32)
    codes[order] = np.arange(len(times)) * parts // max(len(times), 1)
    starts = [int(times[order[-(-len(times) * part // parts)]]) for part in range(parts)]
    names = [datetime.fromtimestamp(start // 1_000_000, UTC).strftime("%Y-%m-%d %H:%M") for start in starts]
    return RowGroups(_distinct(names), codes, tuple(starts))
