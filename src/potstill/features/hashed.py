"""Strings of a list that is unknown or long: each has one of a fixed number of columns, by its hash."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidContext, shown
from potstill.features.contract import (
    FeatureType,
    Float32,
    Holds,
    KernelFeature,
    Writer,
    check_size,
    with_flag,
)
from potstill.siphash import siphash, siphash_many

#: Key of the hash. It is public: the columns of a value are the same for every policy.
KEY = bytes(16)


class Hashed(FeatureType, frozen=True, tag="hashed"):
    """A string, one-hot in the column that its hash selects; for merchants, cities, campaigns and the like.

    The values need no list, and new ones need no change. Values whose hashes select the same column are not told
    apart: of V values, each shares its column with (V - 1) / size others on average.

    Args:
        name: Key in the context.
        size: Number of columns.
        missing: What an absent or ``None`` value means: ``"error"``; or ``"flag"``, 0 in all columns and 1 in a column
            of its own. An empty string is a value.
    """

    name: str
    size: int
    missing: Literal["error", "flag"] = "error"

    holds: ClassVar[Holds] = "string"

    def __post_init__(self) -> None:
        self.check_common("error", "flag")
        check_size(self.name, self.size, 2)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return with_flag(tuple(f"{self.name}#{i}" for i in range(self.size)), self.name, self.missing)

    @property
    def example(self) -> str:
        """A value for examples."""
        return f"{self.name}-1"

    @property
    def blank(self) -> None:
        """There is no value that is encoded as zeros."""
        return

    @property
    def must_be(self) -> str:
        """What a value must be, for messages."""
        return "a string"

    @property
    def in_words(self) -> str:
        """Description of the values, for the documentation of an API."""
        return f"A string, which its hash puts into one of {self.size} groups."

    @property
    def kernel(self) -> KernelFeature:
        """The feature as the C kernel has it."""
        return KernelFeature("hashed", self.missing_in_kernel, size=self.size)

    def column(self, value: str) -> int:
        """Column of a value, from 0."""
        return siphash(KEY, self._bytes(value)) % self.size

    def writer(self, at: int) -> Writer:
        """Encode one value at columns ``at`` to ``at + width`` of a row of zeros."""

        def put(value: str, row: list[float]) -> None:
            row[at + self.column(value)] = 1.0

        return self.string_writer(put, at + self.size)

    def encode_column(self, column: NDArray[Any]) -> Float32 | None:
        """Encode an array of strings to float32[N, width], each value hashed once; None to go value by value.

        NumPy's arrays of strings have dropped trailing NULs; arrays of objects keep them, and None is a missing value.
        """
        if column.dtype.kind not in "UO":
            return None
        codes: dict[object, int] = {}
        try:
            index = np.fromiter(
                (codes.setdefault(value, len(codes)) for value in column.tolist()), np.intp, len(column)
            )
        except TypeError:
            return None  # a value that is not hashable, and no string
        if not all(isinstance(value, str) or (value is None and self.optional) for value in codes):
            return None
        block = np.zeros((len(column), len(self.labels)), np.float32)
        block[np.arange(len(column)), self._columns(codes)[index]] = 1.0
        return block

    def _columns(self, values: Iterable[object]) -> NDArray[np.intp]:
        """Columns of strings, and of None, which has the last one."""
        listed = list(values)
        hashes = siphash_many(KEY, [self._bytes(value) if isinstance(value, str) else b"" for value in listed])
        columns = (hashes % np.uint64(self.size)).astype(np.intp)
        columns[[value is None for value in listed]] = self.size
        return columns

    def draw(self, rng: np.random.Generator, count: int) -> Float32:
        """Columns drawn uniformly, float32[count, size], for contexts before any was observed."""
        block = np.zeros((count, self.size), np.float32)
        block[np.arange(count), rng.integers(self.size, size=count)] = 1.0
        return block

    def _bytes(self, value: str) -> bytes:
        try:
            return str.encode(value)
        except UnicodeEncodeError:
            raise InvalidContext(
                f"feature {self.name!r}: expected a string of valid Unicode, got {shown(value)}; "
                "replace lone surrogates"
            ) from None
