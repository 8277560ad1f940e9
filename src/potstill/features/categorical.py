"""Strings of a known list, one-hot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidProblem, check_distinct, check_name, shown
from potstill.features.contract import FeatureType, Float32, Holds, KernelFeature, Writer


class Categorical(FeatureType, frozen=True, tag="categorical"):
    """One of several strings, one-hot, with a last column for values that are not in the list.

    Args:
        name: Key in the context.
        values: Known values, in the order of their columns.
        missing: What an absent or ``None`` value means: ``"unseen"``, the last column, or ``"error"``.
    """

    name: str
    values: Sequence[str]
    missing: Literal["unseen", "error"] = "unseen"

    holds: ClassVar[Holds] = "string"
    may_be_missing: ClassVar[str] = "missing='unseen'"

    def __post_init__(self) -> None:
        self.check_common()
        if isinstance(self.values, str) or not isinstance(self.values, (list, tuple)) or not self.values:
            raise InvalidProblem(
                f"feature {self.name!r}: values must be a non-empty list of strings, got {shown(self.values)}"
            )
        msgspec.structs.force_setattr(self, "values", tuple(self.values))
        for value in self.values:
            check_name(value, f"feature {self.name!r}: a value")
        check_distinct(self.values, f"feature {self.name!r}: value")
        self.check_common("unseen", "error")

    @property
    def format(self) -> int:
        """The lowest format of policy files that have the feature."""
        return 1

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return tuple(f"{self.name}={value}" for value in (*self.values, "<unseen>"))

    @property
    def example(self) -> str:
        """A value for examples: the first one."""
        return self.values[0]

    @property
    def examples(self) -> list[Any]:
        """Values for the documentation of an API: all."""
        return list(self.values)

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
        return f"One of {', '.join(self.values)}; any other value counts as unseen."

    @property
    def kernel(self) -> KernelFeature:
        """The feature as the C kernel has it."""
        return KernelFeature("categorical", self.missing_in_kernel, categories=tuple(self.values))

    def writer(self, at: int) -> Writer:
        """Encode one value at columns ``at`` to ``at + width`` of a row of zeros."""
        places = {value: at + i for i, value in enumerate(self.values)}
        unseen = at + len(self.values)

        def put(value: str, row: list[float]) -> None:
            row[places.get(value, unseen)] = 1.0

        return self.string_writer(put, unseen)

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

    def draw(self, rng: np.random.Generator, count: int) -> Float32:
        """Encoded values of the list, and unseen ones, float32[count, width], for contexts before any was observed."""
        width = len(self.labels)
        block = np.zeros((count, width), np.float32)
        block[np.arange(count), rng.integers(width, size=count)] = 1.0
        return block
