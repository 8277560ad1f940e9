"""Context features, and how each becomes float32 columns: one value at a time, or a whole NumPy column at once.

A feature type is a frozen Struct with ``name``, ``labels`` (one per encoded column), ``example``, ``writer`` and
``encode_column``.
Both ways give the same float32, and so do the other runtimes, which follow ``docs/policy-format.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidContext, InvalidProblem, check_distinct, check_name, shown

#: Writes one value into the encoded row, at the feature's place; ``None`` is a missing value.
Writer = Callable[[object, list[float]], None]
Float32 = NDArray[np.float32]

_REAL = (int, float, np.integer, np.floating)
#: Definition of a numeric feature that may be missing.
_MAY_BE_MISSING = "missing=<number> or missing='flag'"


def _missing_error(name: str, way_out: str) -> InvalidContext:
    return InvalidContext(f"feature {name!r} is missing; send a value, or define the feature with {way_out}")


class Numeric(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="numeric"):
    """A number, scaled so that ``low`` is 0 and ``high`` is 1, and clipped to [0, 1].

    Args:
        name: Key in the context.
        low: Value that is encoded as 0.
        high: Value that is encoded as 1.
        scale: ``"log"`` puts equal ratios at equal distances, as bandwidths, prices and sizes want.
        missing: What an absent or ``None`` value means: ``"error"``; a number that replaces it; or ``"flag"``, 0
            in the column and 1 in a column of its own. NaN and infinity are errors, never missing.
    """

    name: str
    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"
    missing: float | Literal["error", "flag"] = "error"

    def __post_init__(self) -> None:
        check_name(self.name, "a feature's name")
        for side in ("low", "high"):
            msgspec.structs.force_setattr(self, side, self._bound(side, getattr(self, side)))
        if not math.isfinite(self.high - self.low):
            raise InvalidProblem(f"feature {self.name!r}: the range from {self.low} to {self.high} is too large")
        if not self.low < self.high:
            raise InvalidProblem(f"feature {self.name!r}: low must be below high, got low={self.low}, high={self.high}")
        if self.scale not in ("linear", "log"):
            raise InvalidProblem(f"feature {self.name!r}: scale must be 'linear' or 'log', got {shown(self.scale)}")
        if self.scale == "log" and self.low <= 0:
            raise InvalidProblem(f"feature {self.name!r}: a log scale needs low > 0, got low={self.low}")
        if self.unit[1] <= 0:
            raise InvalidProblem(
                f"feature {self.name!r}: low and high are too close for a log scale, got {self.low} and {self.high}"
            )
        if self.missing not in ("error", "flag"):
            msgspec.structs.force_setattr(self, "missing", self._bound("missing", self.missing))

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return (self.name, f"{self.name}=<missing>") if self.missing == "flag" else (self.name,)

    @property
    def example(self) -> float:
        """A value for examples: the middle of the range."""
        return (self.low + self.high) / 2

    @property
    def unit(self) -> tuple[float, float]:
        """Origin and span: a clipped value v becomes (v - origin) / span, with ln v for v on a log scale."""
        if self.scale == "log":
            return math.log(self.low), math.log(self.high) - math.log(self.low)
        return self.low, self.high - self.low

    def writer(self, at: int) -> Writer:
        """Encode one value at column ``at`` of a row of zeros."""
        low, high, missing, linear = self.low, self.high, self.missing, self.scale == "linear"
        origin, span = self.unit

        def write(value: object, row: list[float]) -> None:
            if linear and type(value) is float and low <= value <= high:  # the path of nearly every decision
                row[at] = (value - origin) / span
                return
            if value is None:
                if missing == "error":
                    raise _missing_error(self.name, _MAY_BE_MISSING)
                if missing == "flag":
                    row[at + 1] = 1.0
                    return
                value = missing
            clipped = min(max(self._number(value), low), high)
            row[at] = ((clipped if linear else math.log(clipped)) - origin) / span

        return write

    def encode_column(self, column: NDArray[Any]) -> Float32 | None:
        """Encode a numeric array to float32[N, width]; None if it has to go value by value."""
        if column.dtype.kind not in "iuf":
            return None
        values = column.astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            raise InvalidContext(f"row {bad[0]}: {self._not_finite(column[bad[0]])}")
        origin, span = self.unit
        clipped = np.clip(values, self.low, self.high)
        block = np.zeros((len(values), len(self.labels)), np.float32)
        block[:, 0] = ((clipped if self.scale == "linear" else np.log(clipped)) - origin) / span
        return block

    def _number(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, _REAL):
            raise InvalidContext(f"feature {self.name!r}: expected a number, got {shown(value)}")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise InvalidContext(self._not_finite(value))
        return number

    def _not_finite(self, value: object) -> str:
        way_out = (
            f"if it may be missing, define the feature with {_MAY_BE_MISSING} and send None"
            if self.missing == "error"
            else "send None for a missing value"
        )
        return f"feature {self.name!r}: expected a finite number, got {shown(value)}; {way_out}"

    def _bound(self, field: str, value: object) -> float:
        try:
            return self._number(value)
        except InvalidContext:
            raise InvalidProblem(
                f"feature {self.name!r}: {field} must be a finite number, got {shown(value)}"
            ) from None


class Categorical(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="categorical"):
    """One of several strings, one-hot, with a last column for values that are not in the list.

    Args:
        name: Key in the context.
        values: Known values, in the order of their columns.
        missing: What an absent or ``None`` value means: ``"unseen"``, the last column, or ``"error"``.
    """

    name: str
    values: Sequence[str]
    missing: Literal["unseen", "error"] = "unseen"

    def __post_init__(self) -> None:
        check_name(self.name, "a feature's name")
        if isinstance(self.values, str) or not isinstance(self.values, (list, tuple)) or not self.values:
            raise InvalidProblem(
                f"feature {self.name!r}: values must be a non-empty list of strings, got {shown(self.values)}"
            )
        msgspec.structs.force_setattr(self, "values", tuple(self.values))
        for value in self.values:
            check_name(value, f"feature {self.name!r}: a value")
        check_distinct(self.values, f"feature {self.name!r}: value")
        if self.missing not in ("unseen", "error"):
            raise InvalidProblem(
                f"feature {self.name!r}: missing must be 'unseen' or 'error', got {shown(self.missing)}"
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return tuple(f"{self.name}={value}" for value in (*self.values, "<unseen>"))

    @property
    def example(self) -> str:
        """A value for examples: the first one."""
        return self.values[0]

    def writer(self, at: int) -> Writer:
        """Encode one value at columns ``at`` to ``at + width`` of a row of zeros."""
        places = {value: at + i for i, value in enumerate(self.values)}
        unseen = at + len(self.values)

        def write(value: object, row: list[float]) -> None:
            if isinstance(value, str):
                row[places.get(value, unseen)] = 1.0
            elif value is not None:
                raise InvalidContext(f"feature {self.name!r}: expected a string, got {shown(value)}")
            elif self.missing == "error":
                raise _missing_error(self.name, "missing='unseen'")
            else:
                row[unseen] = 1.0

        return write

    def encode_column(self, column: NDArray[Any]) -> Float32 | None:
        """Encode a string array to float32[N, width]; None if it has to go value by value."""
        if column.dtype.kind != "U" or any(value.endswith("\0") for value in self.values):
            return None  # NumPy's arrays of strings drop trailing NULs, which tell values apart
        order = np.argsort(self.values)
        known = np.asarray(self.values)[order]
        place = np.minimum(np.searchsorted(known, column), len(known) - 1)
        index = np.where(known[place] == column, order[place], len(known))
        block = np.zeros((len(column), len(self.labels)), np.float32)
        block[np.arange(len(column)), index] = 1.0
        return block


class Boolean(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="boolean"):
    """True or false, as 1 or 0.

    Args:
        name: Key in the context.
        missing: What an absent or ``None`` value means: ``"error"``; ``True`` or ``False`` in its place; or
            ``"flag"``, 0 in the column and 1 in a column of its own.
    """

    name: str
    missing: bool | Literal["error", "flag"] = "error"

    def __post_init__(self) -> None:
        check_name(self.name, "a feature's name")
        if not isinstance(self.missing, bool) and self.missing not in ("error", "flag"):
            raise InvalidProblem(
                f"feature {self.name!r}: missing must be 'error', 'flag', True or False, got {shown(self.missing)}"
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return (self.name, f"{self.name}=<missing>") if self.missing == "flag" else (self.name,)

    @property
    def example(self) -> bool:
        """A value for examples."""
        return True

    def writer(self, at: int) -> Writer:
        """Encode one value at column ``at`` of a row of zeros."""
        missing = self.missing

        def write(value: object, row: list[float]) -> None:
            if value is None:
                if missing == "error":
                    raise _missing_error(self.name, "missing=False, missing=True or missing='flag'")
                if missing == "flag":
                    row[at + 1] = 1.0
                    return
                value = missing
            if not isinstance(value, (bool, np.bool_)):
                raise InvalidContext(f"feature {self.name!r}: expected true or false, got {shown(value)}")
            row[at] = 1.0 if value else 0.0

        return write

    def encode_column(self, column: NDArray[Any]) -> Float32 | None:
        """Encode a boolean array to float32[N, width]; None if it has to go value by value."""
        if column.dtype.kind != "b":
            return None
        block = np.zeros((len(column), len(self.labels)), np.float32)
        block[:, 0] = column
        return block


Feature = Numeric | Categorical | Boolean
