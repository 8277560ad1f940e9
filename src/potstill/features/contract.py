"""The contract of a feature type: what the encoder, the runtimes, the wire, the lake and the docs need of it.

A feature type is a frozen tagged Struct with `name` and `missing`, in a file of its own, and one member of `Feature`.
Other rooms go by `holds` and never by the type, so that a new type costs no edit there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidContext, InvalidProblem, check_name, shown

#: Writes one value into the encoded row, at the feature's place; ``None`` is a missing value.
Writer = Callable[[object, list[float]], None]
Float32 = NDArray[np.float32]

#: What a value is, in JSON and in the lake. "numbers" is a list of a fixed length.
Holds = Literal["number", "string", "boolean", "numbers"]
#: The most columns of one feature: its row of the first layer must stay small.
MOST_COLUMNS = 65_536
REAL = (int, float, np.integer, np.floating)


class KernelFeature(NamedTuple):
    """A feature as the C kernel has it; `kernel.h` says what each field means. Fields that a kind ignores are zero.

    Attributes:
        kind: How values are encoded.
        missing: What a missing value becomes.
        stand_in: The value in place of a missing one.
        low, high: Ends of the range that values are clipped to.
        origin, span: A clipped value v becomes (v - origin) / span.
        log: Whether v is replaced by its logarithm.
        categories: Known values in the order of their columns.
        size: Number of columns before that of the flag, unless it is a number, a boolean or a category.
        unit: Whether a vector is divided by its length.
        knots: Ends and knots of a quantile scale.
        ngrams: Characters of an n-gram of a text.
        parts: Parts of a timestamp, in the order of their columns.
        offset: Seconds that the clock of a timestamp is ahead of UTC.
        own: Whether the clock is that of each string.
        per_second: Numbers per second of a timestamp; 0 if its values are strings.
    """

    kind: Literal["numeric", "boolean", "categorical", "hashed", "vector", "ngrams", "timestamp"]
    missing: Literal["refuse", "stand_in", "flag"]
    stand_in: float = 0.0
    low: float = 0.0
    high: float = 0.0
    origin: float = 0.0
    span: float = 1.0
    log: bool = False
    categories: tuple[str, ...] = ()
    size: int = 0
    unit: bool = False
    knots: tuple[float, ...] = ()
    ngrams: int = 0
    parts: tuple[str, ...] = ()
    offset: int = 0
    own: bool = False
    per_second: float = 0.0


class FeatureType(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """What all feature types share.

    A subclass has the fields `name` and `missing`; the properties `holds`, `labels` (one per encoded column),
    `example`, `blank`, `must_be`, `in_words` and `kernel`; and the methods `writer`, `encode_column` and `draw`. A
    missing value with ``missing="flag"`` has 0 in all columns and 1 in the last one.
    """

    #: Name of the options that allow missing values, for messages.
    may_be_missing: ClassVar[str] = "missing='flag'"

    @property
    def holds(self) -> Holds:
        """What a value is, in JSON and in the lake."""
        raise NotImplementedError

    @property
    def moment(self) -> Literal["text", "s", "ms", "us"] | None:
        """How a value states a time: as RFC 3339, or as a number since 1970; None if it is no time."""
        return None

    @property
    def format(self) -> int:
        """The lowest format of policy files that have the feature."""
        return 2

    @property
    def length(self) -> int:
        """Number of values: more than 1 only in a list of numbers."""
        return 1

    @property
    def longest(self) -> int | None:
        """Most characters of a string; None if any number fits."""
        return None

    @property
    def examples(self) -> list[Any]:
        """Values for the documentation of an API."""
        return [self.example]  # type: ignore[attr-defined]

    @property
    def optional(self) -> bool:
        """Whether a value may be missing."""
        return bool(self.missing != "error")  # type: ignore[attr-defined]

    @property
    def missing_in_kernel(self) -> Literal["refuse", "stand_in", "flag"]:
        """What the kernel makes of a missing value."""
        ways: dict[object, Literal["refuse", "flag"]] = {"error": "refuse", "flag": "flag"}
        return ways.get(self.missing, "stand_in")  # type: ignore[attr-defined]

    def check_common(self, *missing: object) -> None:
        """Raise `InvalidProblem` if the name is none, or `missing` is not among those given; none given skips it."""
        name, stated = self.name, self.missing  # type: ignore[attr-defined]
        check_name(name, "a feature's name")
        if missing and stated not in missing:
            listed = " or ".join(repr(one) for one in missing)
            raise InvalidProblem(f"feature {name!r}: missing must be {listed}, got {shown(stated)}")

    def string_writer(self, put: Callable[[str, list[float]], None], absent: int) -> Writer:
        """A writer of strings by `put`; a missing value, if the feature allows it, is 1 in the column `absent`."""

        def write(value: object, row: list[float]) -> None:
            if isinstance(value, str):
                put(value, row)
            elif value is not None:
                name = self.name  # type: ignore[attr-defined]
                raise InvalidContext(f"feature {name!r}: expected a string, got {shown(value)}")
            elif self.missing == "error":  # type: ignore[attr-defined]
                raise self.missing_error()
            else:
                row[absent] = 1.0

        return write

    def missing_error(self) -> InvalidContext:
        """The error for a missing value of a feature that needs one."""
        name = self.name  # type: ignore[attr-defined]
        return InvalidContext(
            f"feature {name!r} is missing; send a value, or define the feature with {self.may_be_missing}"
        )

    def not_finite(self, value: object, place: str = "") -> InvalidContext:
        """The error for a number that is not finite, at a place such as ``[3]`` within a list."""
        way_out = "send None for a missing value"
        if not self.optional:
            way_out = f"if it may be missing, define the feature with {self.may_be_missing} and send None"
        name = self.name  # type: ignore[attr-defined]
        return InvalidContext(f"feature {name!r}{place}: expected a finite number, got {shown(value)}; {way_out}")


def check_size(name: str, size: object, smallest: int) -> None:
    """Raise `InvalidProblem` unless `size` is a number of columns."""
    if isinstance(size, bool) or not isinstance(size, int) or not smallest <= size <= MOST_COLUMNS:
        raise InvalidProblem(
            f"feature {name!r}: size must be a whole number from {smallest} to {MOST_COLUMNS}, got {shown(size)}"
        )


def with_flag(labels: tuple[str, ...], name: str, missing: object) -> tuple[str, ...]:
    """Labels of columns, followed by that of the flag if there is one."""
    return (*labels, f"{name}=<missing>") if missing == "flag" else labels
