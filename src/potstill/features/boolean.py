"""True or false."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidContext, InvalidProblem, shown
from potstill.features.contract import FeatureType, Float32, Holds, KernelFeature, Writer, with_flag


class Boolean(FeatureType, frozen=True, tag="boolean"):
    """True or false, as 1 or 0.

    Args:
        name: Key in the context.
        missing: What an absent or ``None`` value means: ``"error"``; ``True`` or ``False`` in its place; or
            ``"flag"``, 0 in the column and 1 in a column of its own.
    """

    name: str
    missing: bool | Literal["error", "flag"] = "error"

    holds: ClassVar[Holds] = "boolean"
    may_be_missing: ClassVar[str] = "missing=False, missing=True or missing='flag'"

    def __post_init__(self) -> None:
        self.check_common()
        if not isinstance(self.missing, bool) and self.missing not in ("error", "flag"):
            raise InvalidProblem(
                f"feature {self.name!r}: missing must be 'error', 'flag', True or False, got {shown(self.missing)}"
            )

    @property
    def format(self) -> int:
        """The lowest format of policy files that have the feature."""
        return 1

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return with_flag((self.name,), self.name, self.missing)

    @property
    def example(self) -> bool:
        """A value for examples."""
        return True

    @property
    def blank(self) -> bool:
        """A value that is encoded as 0."""
        return False

    @property
    def must_be(self) -> str:
        """What a value must be, for messages."""
        return "true or false"

    @property
    def in_words(self) -> str:
        """Description of the values, for the documentation of an API."""
        return "True or false."

    @property
    def kernel(self) -> KernelFeature:
        """The feature as the C kernel has it."""
        return KernelFeature("boolean", self.missing_in_kernel, stand_in=float(self.missing is True))

    def writer(self, at: int) -> Writer:
        """Encode one value at column ``at`` of a row of zeros."""
        missing = self.missing

        def write(value: object, row: list[float]) -> None:
            if value is None:
                if missing == "error":
                    raise self.missing_error()
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

    def draw(self, rng: np.random.Generator, count: int) -> Float32:
        """Encoded values, float32[count, 1], for contexts before any was observed."""
        return (rng.random(count) < 0.5)[:, None].astype(np.float32)
