"""Types of features that events state: the columns of the table that is made of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import polars as pl

from potstill.problem import Flat, as_text
from potstill.tables.dsjson.line import as_float
from potstill.tables.scan import can_be_column

#: Most features that become columns: the most frequent ones.
MOST_FEATURES = 1_000
#: Names that are counted: more are hardly features.
_MOST_NAMES = 100_000
#: Whole numbers that a column of integers holds.
_WHOLE = 2**63

_Kind = Literal["boolean", "integer", "number", "numbers", "text"]
_TYPES: dict[_Kind, pl.DataType] = {
    "boolean": pl.Boolean(),
    "integer": pl.Int64(),
    "number": pl.Float64(),
    "numbers": pl.List(pl.Float64()),
    "text": pl.String(),
}


class FeatureTypes:
    """Names and types of features, counted over events.

    Names beyond the first `_MOST_NAMES` are ignored.
    """

    def __init__(self) -> None:
        self._events = 0
        self._counts: Counter[str] = Counter()
        self._kinds: dict[str, set[_Kind]] = {}
        self._values: dict[str, object] = {}  # the one value of each feature that has been seen with one only

    def see(self, context: Flat) -> None:
        """Count the features of an event."""
        self._events += 1
        for name, value in context.items():
            if name in self._kinds:
                self._kinds[name].add(_kind(value))
                if name in self._values and self._values[name] != value:
                    del self._values[name]
            elif len(self._kinds) < _MOST_NAMES:
                self._kinds[name] = {_kind(value)}
                self._values[name] = value
            else:
                continue
            self._counts[name] += 1

    @property
    def columns(self) -> list[FeatureColumn]:
        """The columns, by first appearance."""
        kept = self._kept
        return [self._column(name) for name in self._kinds if kept.get(name.lower()) == name]

    @property
    def left_out(self) -> int:
        """Number of names that are no columns: others are more frequent or the same but for the case of letters, or a
        column cannot be called so.
        """
        return len(self._kinds) - len(self._kept)

    @property
    def _kept(self) -> dict[str, str]:
        """The most frequent names by their lower case, in which columns of the lake must differ."""
        found: dict[str, str] = {}
        for name, _ in self._counts.most_common():
            if len(found) < MOST_FEATURES and can_be_column(name):
                found.setdefault(name.lower(), name)
        return found

    def _column(self, name: str) -> FeatureColumn:
        kind = _common(self._kinds[name])
        sometimes = self._counts[name] < self._events
        indicator = sometimes and kind not in ("numbers", "text") and bool(self._values.get(name))
        return FeatureColumn(name, "boolean" if indicator else kind, indicator=indicator)


class FeatureColumn:
    """A column of features.

    Args:
        name: Name of the feature.
        kind: What its values are.
        indicator: Whether it is present or absent, always with the same value: a boolean that is false where absent.
    """

    def __init__(self, name: str, kind: _Kind, *, indicator: bool) -> None:
        self.name, self.kind, self.indicator = name, kind, indicator

    @property
    def dtype(self) -> pl.DataType:
        """Type of the column."""
        return _TYPES[self.kind]

    def values(self, contexts: Sequence[Flat]) -> list[Any]:
        """The values of some events."""
        return [self._value(context.get(self.name)) for context in contexts]

    def _value(self, value: Any) -> Any:
        if self.indicator:
            return value is not None
        if value is None:
            return None
        if self.kind == "text":
            return value if isinstance(value, str) else as_text(value)
        if self.kind == "number":
            found = as_float(value)
            return found if math.isfinite(found) else None
        return int(value) if self.kind == "integer" else value


def _kind(value: object) -> _Kind:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer" if abs(value) < _WHOLE else "number"
    if isinstance(value, float):
        return "number"
    return "text" if isinstance(value, str) else "numbers"


def _common(kinds: set[_Kind]) -> _Kind:
    """The narrowest kind that holds values of all of these."""
    if len(kinds) == 1:
        return next(iter(kinds))
    if kinds <= {"boolean", "integer"}:
        return "integer"
    return "number" if kinds <= {"boolean", "integer", "number"} else "text"
