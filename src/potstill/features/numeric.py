"""Numbers, scaled to [0, 1]: linearly, by their logarithm, or by their rank among knots."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidContext, InvalidProblem, shown
from potstill.features.contract import REAL, FeatureType, Float32, Holds, KernelFeature, Writer, with_flag

#: The most knots of a quantile scale.
MOST_KNOTS = 1_000


class Numeric(FeatureType, frozen=True, tag="numeric"):
    """A number, scaled so that ``low`` is 0 and ``high`` is 1, and clipped to [0, 1].

    Args:
        name: Key in the context.
        low: Value that is encoded as 0.
        high: Value that is encoded as 1.
        scale: ``"log"`` puts equal ratios at equal distances, as bandwidths, prices and sizes want. ``"quantile"``
            puts ``low``, the knots and ``high`` at equal distances, with straight lines between them.
        missing: What an absent or ``None`` value means: ``"error"``; a number that replaces it; or ``"flag"``, 0
            in the column and 1 in a column of its own. NaN and infinity are errors, never missing.
        knots: Of a quantile scale: increasing numbers between ``low`` and ``high``, such as the deciles of the data.
    """

    name: str
    low: float
    high: float
    scale: Literal["linear", "log", "quantile"] = "linear"
    missing: float | Literal["error", "flag"] = "error"
    knots: Sequence[float] = ()

    holds: ClassVar[Holds] = "number"
    may_be_missing: ClassVar[str] = "missing=<number> or missing='flag'"

    def __post_init__(self) -> None:
        self.check_common()
        for side in ("low", "high"):
            msgspec.structs.force_setattr(self, side, self._bound(side, getattr(self, side)))
        if not math.isfinite(self.high - self.low):
            raise InvalidProblem(f"feature {self.name!r}: the range from {self.low} to {self.high} is too large")
        if not self.low < self.high:
            raise InvalidProblem(f"feature {self.name!r}: low must be below high, got low={self.low}, high={self.high}")
        self._check_scale()
        self._check_knots()
        if self.missing not in ("error", "flag"):
            msgspec.structs.force_setattr(self, "missing", self._bound("missing", self.missing))

    def _check_scale(self) -> None:
        if self.scale not in ("linear", "log", "quantile"):
            raise InvalidProblem(
                f"feature {self.name!r}: scale must be 'linear', 'log' or 'quantile', got {shown(self.scale)}"
            )
        if self.scale == "log" and self.low <= 0:
            raise InvalidProblem(f"feature {self.name!r}: a log scale needs low > 0, got low={self.low}")
        if self.unit[1] <= 0:
            raise InvalidProblem(
                f"feature {self.name!r}: low and high are too close for a log scale, got {self.low} and {self.high}"
            )

    def _check_knots(self) -> None:
        if isinstance(self.knots, str) or not isinstance(self.knots, (list, tuple)) or len(self.knots) > MOST_KNOTS:
            raise InvalidProblem(
                f"feature {self.name!r}: knots must be a list of at most {MOST_KNOTS} numbers, got {shown(self.knots)}"
            )
        knots = tuple(self._bound(f"knots[{i}]", knot) for i, knot in enumerate(self.knots))
        msgspec.structs.force_setattr(self, "knots", knots)
        if bool(knots) != (self.scale == "quantile"):
            raise InvalidProblem(
                f"feature {self.name!r}: knots and scale='quantile' go together, got {len(knots)} knots and "
                f"scale={self.scale!r}"
            )
        for before, after in pairwise(self.points):
            if not before < after:
                raise InvalidProblem(
                    f"feature {self.name!r}: low, the knots and high must increase, got {before} before {after}"
                )

    @property
    def format(self) -> int:
        """The lowest format of policy files that have the feature."""
        return 2 if self.scale == "quantile" else 1

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return with_flag((self.name,), self.name, self.missing)

    @property
    def example(self) -> float:
        """A value for examples: the middle of the range."""
        return (self.low + self.high) / 2

    @property
    def blank(self) -> float:
        """A value that is encoded as 0."""
        return self.low

    @property
    def must_be(self) -> str:
        """What a value must be, for messages."""
        return "a finite number"

    @property
    def in_words(self) -> str:
        """Description of the values, for the documentation of an API."""
        ways = {"log": " on a logarithmic scale", "quantile": " on a scale of quantiles"}
        return f"A number from {self.low:g} to {self.high:g}{ways.get(self.scale, '')}; values outside are clipped."

    @property
    def kernel(self) -> KernelFeature:
        """The feature as the C kernel has it."""
        origin, span = self.unit
        return KernelFeature(
            "numeric",
            self.missing_in_kernel,
            stand_in=0.0 if isinstance(self.missing, str) else self.missing,
            low=self.low,
            high=self.high,
            origin=origin,
            span=span,
            log=self.scale == "log",
            knots=self.points if self.scale == "quantile" else (),
        )

    @property
    def unit(self) -> tuple[float, float]:
        """Origin and span: a clipped value v becomes (v - origin) / span, with ln v for v on a log scale."""
        if self.scale == "log":
            return math.log(self.low), math.log(self.high) - math.log(self.low)
        return self.low, self.high - self.low

    @property
    def points(self) -> tuple[float, ...]:
        """Ends and knots of the scale: on a quantile scale they are encoded as 0, 1/m, 2/m, …, 1."""
        return self.low, *self.knots, self.high

    def writer(self, at: int) -> Writer:
        """Encode one value at column ``at`` of a row of zeros."""
        low, high, missing, linear = self.low, self.high, self.missing, self.scale == "linear"
        (origin, span), scaled = self.unit, self._scaled()

        def write(value: object, row: list[float]) -> None:
            if linear and type(value) is float and low <= value <= high:  # the path of nearly every decision
                row[at] = (value - origin) / span
                return
            if value is None:
                if missing == "error":
                    raise self.missing_error()
                if missing == "flag":
                    row[at + 1] = 1.0
                    return
                value = missing
            row[at] = scaled(min(max(self._number(value), low), high))

        return write

    def _scaled(self) -> Callable[[float], float]:
        (origin, span), points = self.unit, self.points
        if self.scale == "linear":
            return lambda value: (value - origin) / span
        if self.scale == "log":
            return lambda value: (math.log(value) - origin) / span

        def rank(value: float) -> float:
            place = min(bisect_right(points, value), len(points) - 1) - 1
            return (place + (value - points[place]) / (points[place + 1] - points[place])) / (len(points) - 1)

        return rank

    def encode_column(self, column: NDArray[Any]) -> Float32 | None:
        """Encode a numeric array to float32[N, width]; None if it has to go value by value."""
        if column.dtype.kind not in "iuf":
            return None
        values = column.astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            raise InvalidContext(f"row {bad[0]}: {self.not_finite(column[bad[0]])}")
        block = np.zeros((len(values), len(self.labels)), np.float32)
        block[:, 0] = self._scaled_column(np.clip(values, self.low, self.high))
        return block

    def _scaled_column(self, clipped: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.scale != "quantile":
            origin, span = self.unit
            return ((clipped if self.scale == "linear" else np.log(clipped)) - origin) / span
        points = np.array(self.points)
        last = len(points) - 1
        place = np.minimum(np.searchsorted(points, clipped, side="right"), last) - 1
        scaled: NDArray[np.float64] = (place + (clipped - points[place]) / (points[place + 1] - points[place])) / last
        return scaled

    def draw(self, rng: np.random.Generator, count: int) -> Float32:
        """Encoded values of the declared range, float32[count, 1], for contexts before any was observed."""
        return rng.random(count)[:, None].astype(np.float32)

    def _number(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, REAL):
            raise InvalidContext(f"feature {self.name!r}: expected a number, got {shown(value)}")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self.not_finite(value)
        return number

    def _bound(self, field: str, value: object) -> float:
        try:
            return self._number(value)
        except InvalidContext:
            raise InvalidProblem(
                f"feature {self.name!r}: {field} must be a finite number, got {shown(value)}"
            ) from None
