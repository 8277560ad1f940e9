"""Lists of numbers of one length, such as embeddings."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidContext, InvalidProblem, shown
from potstill.features.contract import (
    REAL,
    FeatureType,
    Float32,
    Holds,
    KernelFeature,
    Writer,
    check_size,
    with_flag,
)

#: Largest size of a number: encoded numbers are float32, and squares must stay within float64.
LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


class Vector(FeatureType, frozen=True, tag="vector"):
    """A list of numbers, one column each; as they are, scaled, or divided by their Euclidean length.

    Args:
        name: Key in the context.
        size: How many numbers.
        low: Value that is encoded as 0; lower ones are clipped. Stated together with ``high``, or not at all.
        high: Value that is encoded as 1; higher ones are clipped.
        norm: ``"unit"`` divides by the Euclidean length. A list of zeros stays zeros.
        missing: What an absent or ``None`` value means: ``"error"``; or ``"flag"``, 0 in all columns and 1 in a column
            of its own. A list of another length is an error, and so are NaN and infinity.
    """

    name: str
    size: int
    low: float | None = None
    high: float | None = None
    norm: Literal["unit"] | None = None
    missing: Literal["error", "flag"] = "error"

    holds: ClassVar[Holds] = "numbers"

    def __post_init__(self) -> None:
        self.check_common("error", "flag")
        check_size(self.name, self.size, 1)
        if self.norm not in (None, "unit"):
            raise InvalidProblem(f"feature {self.name!r}: norm must be 'unit' or left out, got {shown(self.norm)}")
        if (self.low is None) != (self.high is None):
            raise InvalidProblem(
                f"feature {self.name!r}: low and high go together, got low={self.low!r}, high={self.high!r}"
            )
        if self.low is not None and self.norm is not None:
            raise InvalidProblem(f"feature {self.name!r}: norm='unit' needs no low and high; leave one of them out")
        for side in ("low", "high"):
            if getattr(self, side) is not None:
                msgspec.structs.force_setattr(self, side, self._bound(side, getattr(self, side)))
        if self.low is not None and not self.low < self._high:
            raise InvalidProblem(f"feature {self.name!r}: low must be below high, got low={self.low}, high={self.high}")

    @property
    def length(self) -> int:
        """Number of values."""
        return self.size

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return with_flag(tuple(f"{self.name}[{i}]" for i in range(self.size)), self.name, self.missing)

    @property
    def example(self) -> list[float]:
        """A value for examples."""
        return [0.5 if self.low is None else (self.low + self._high) / 2] * self.size

    @property
    def blank(self) -> list[float]:
        """A value that is encoded as zeros."""
        return [self.low or 0.0] * self.size

    @property
    def must_be(self) -> str:
        """What a value must be, for messages."""
        return f"a list of {self.size} finite numbers"

    @property
    def in_words(self) -> str:
        """Description of the values, for the documentation of an API."""
        ways = "" if self.low is None else f" from {self.low:g} to {self.high:g}; values outside are clipped"
        return f"A list of {self.size} numbers{ways or (', divided by its length' if self.norm else '')}."

    @property
    def kernel(self) -> KernelFeature:
        """The feature as the C kernel has it; a range of one point stands for numbers as they are."""
        if self.low is None:
            return KernelFeature("vector", self.missing_in_kernel, size=self.size, unit=self.norm == "unit")
        span = self._high - self.low
        return KernelFeature(
            "vector", self.missing_in_kernel, 0.0, self.low, self._high, self.low, span, size=self.size
        )

    def writer(self, at: int) -> Writer:
        """Encode one value at columns ``at`` to ``at + width`` of a row of zeros."""
        size = self.size

        def write(value: object, row: list[float]) -> None:
            if value is not None:
                row[at : at + size] = self._scaled(self._numbers(value))
            elif self.missing == "error":
                raise self.missing_error()
            else:
                row[at + size] = 1.0

        return write

    def _numbers(self, value: object) -> list[float]:
        listed = value.tolist() if isinstance(value, np.ndarray) else value
        if not isinstance(listed, (list, tuple)):
            raise InvalidContext(f"feature {self.name!r}: expected a list of {self.size} numbers, got {shown(value)}")
        if len(listed) != self.size:
            raise InvalidContext(
                f"feature {self.name!r}: expected a list of {self.size} numbers, got one of {len(listed)}"
            )
        return [self._number(number, f"[{i}]") for i, number in enumerate(listed)]

    def _number(self, value: object, place: str) -> float:
        if isinstance(value, bool) or not isinstance(value, REAL):
            raise InvalidContext(f"feature {self.name!r}{place}: expected a number, got {shown(value)}")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not abs(number) <= LARGEST_FLOAT32:
            raise self.not_finite(value, place)
        return number

    def _scaled(self, numbers: list[float]) -> list[float]:
        if self.low is not None:
            low, high = self.low, self._high
            return [(min(max(number, low), high) - low) / (high - low) for number in numbers]
        if self.norm is None:
            return numbers
        total = 0.0  # not math.fsum: every runtime adds in this order, to the same last bit
        for number in numbers:
            total += number * number
        length = math.sqrt(total)
        return [number / length for number in numbers] if length > 0 else [0.0] * self.size

    def encode_column(self, column: NDArray[Any]) -> Float32 | None:
        """Encode a numeric array [N, size] to float32[N, width]; None if it has to go value by value."""
        if column.dtype.kind not in "iuf" or column.ndim != 2:
            return None
        if column.shape[1] != self.size:
            raise InvalidContext(
                f"column {self.name!r} must have {self.size} numbers in each row, got shape {column.shape}"
            )
        values = column.astype(np.float64)
        bad = np.argwhere(~(np.abs(values) <= LARGEST_FLOAT32))
        if bad.size:
            row, place = bad[0].tolist()
            raise InvalidContext(f"row {row}: {self.not_finite(column[row, place], f'[{place}]')}")
        block = np.zeros((len(values), len(self.labels)), np.float32)
        block[:, : self.size] = self._scaled_column(values)
        return block

    def _scaled_column(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.low is not None:
            scaled: NDArray[np.float64] = (np.clip(values, self.low, self._high) - self.low) / (self._high - self.low)
            return scaled
        if self.norm is None:
            return values
        total = np.zeros(len(values))
        for numbers in values.T:
            total += numbers * numbers
        length = np.sqrt(total)[:, None]
        return np.divide(values, length, out=np.zeros_like(values), where=length > 0)

    def draw(self, rng: np.random.Generator, count: int) -> Float32:
        """Encoded lists, float32[count, size], for contexts before any was observed: uniform, or normal directions."""
        if self.low is not None:
            return rng.random((count, self.size)).astype(np.float32)
        return self._scaled_column(rng.standard_normal((count, self.size))).astype(np.float32)

    @property
    def _high(self) -> float:
        assert self.high is not None  # `low` is stated
        return self.high

    def _bound(self, field: str, value: object) -> float:
        try:
            return self._number(value, "")
        except InvalidContext:
            raise InvalidProblem(
                f"feature {self.name!r}: {field} must be a finite number of at most {LARGEST_FLOAT32:g} in size, "
                f"got {shown(value)}"
            ) from None
