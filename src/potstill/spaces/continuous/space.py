"""A number from an interval: a price, a dose, a bid."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np

from potstill.errors import InvalidAction, InvalidProblem, check_name, shown
from potstill.spaces.continuous.head import HistogramHead
from potstill.spaces.contract import Actions, Bool, ColumnType, Float32, Float64, WireTypes

#: Largest number of bins: one network output each.
MOST_BINS = 4096


class Continuous(msgspec.Struct, frozen=True, dict=True, omit_defaults=True, tag_field="type", tag="continuous"):
    """A number from `low` to `high`. Policies are histograms over it: a density that is constant within each bin.

    Args:
        name: Name of the number, such as ``"price"``.
        low: Smallest action.
        high: Largest action.
        scale: ``"linear"`` for bins of equal width, ``"log"`` for bins of equal ratio.
        bins: Number of bins. More resolve finer differences, and cost more to learn and to decide.
    """

    name: str
    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"
    bins: int = 128

    measure: ClassVar[Literal["lebesgue"]] = "lebesgue"
    columns: ClassVar[Mapping[str, ColumnType]] = {"action": "number", "eligible": "numbers"}

    def __post_init__(self) -> None:
        check_name(self.name, "the name of a continuous action")
        for field in ("low", "high"):
            msgspec.structs.force_setattr(self, field, self._bound(field, getattr(self, field)))
        if not self.low < self.high or not math.isfinite(self.high - self.low):
            raise InvalidProblem(f"{self._what}: low must be below high, got low={self.low}, high={self.high}")
        if self.scale not in ("linear", "log"):
            raise InvalidProblem(f"{self._what}: scale must be 'linear' or 'log', got {shown(self.scale)}")
        if self.scale == "log" and not self.low > 0:
            raise InvalidProblem(f"{self._what}: a log scale needs low above 0, got {self.low}; or use scale='linear'")
        if isinstance(self.bins, bool) or not isinstance(self.bins, int) or not 2 <= self.bins <= MOST_BINS:
            raise InvalidProblem(f"{self._what}: bins must be a whole number from 2 to {MOST_BINS}, got {self.bins!r}")
        if not (np.diff(self.edges) > 0).all():
            raise InvalidProblem(
                f"{self._what}: from {self.low} to {self.high} there are no {self.bins} bins that differ on a "
                f"{self.scale} scale; use fewer bins, or an interval closer to 0"
            )

    @cached_property
    def edges(self) -> Float64:
        """Edges of the bins, float64[bins + 1].

        On a log scale inner edges are rounded to float32, so that runtimes whose exponential functions differ in the
        last bit have the same edges.
        """
        share = np.arange(self.bins + 1) / self.bins
        if self.scale == "log":
            start, end = math.log(self.low), math.log(self.high)
            with np.errstate(over="ignore"):
                edges = np.exp(start + (end - start) * share).astype(np.float32).astype(np.float64)
        else:
            edges = self.low + (self.high - self.low) * share
        edges[0], edges[-1] = self.low, self.high
        return edges

    @property
    def middles(self) -> Float64:
        """Middles of the bins, float64[bins]."""
        return (self.edges[1:] + self.edges[:-1]) / 2

    @property
    def examples(self) -> Sequence[float]:
        """The middles of the first and the last bin."""
        return self.middles[[0, -1]].tolist()  # type: ignore[no-any-return]

    @cached_property
    def wire(self) -> WireTypes:
        """A number within the bounds; an interval."""
        number: Any = Annotated[float, msgspec.Meta(ge=self.low, le=self.high)]
        return WireTypes(number, tuple[number, number])

    def parse(self, value: object) -> float:
        """A finite number within the bounds, as a float."""
        number = _number(value)
        if number is None or not self.low <= number <= self.high:
            raise InvalidAction(f"{self.name} must be a number from {self.low:g} to {self.high:g}, got {shown(value)}")
        return number

    def encode(self, values: Sequence[Any]) -> Float64:
        """Numbers float64[N]."""
        numbers = np.empty(len(values))
        for i, value in enumerate(values):
            try:
                numbers[i] = self.parse(value)
            except InvalidAction as error:
                raise InvalidAction(f"row {i}: {error}") from None
        return numbers

    def decode(self, actions: Actions) -> list[float]:
        """The numbers as floats."""
        numbers: list[float] = np.asarray(actions, np.float64).tolist()
        return numbers

    def valid(self, actions: Actions) -> Bool:
        """Which numbers are within the bounds."""
        if actions.ndim != 1 or actions.dtype.kind not in "fiu":
            return np.zeros(len(actions), bool)
        valid: Bool = (actions >= self.low) & (actions <= self.high)
        return valid

    def unit(self, actions: Actions) -> Float64:
        """Positions on the scale of the space, from 0 at `low` to 1 at `high`, float64[N]."""
        numbers = np.asarray(actions, np.float64)
        if self.scale == "log":
            placed: Float64 = np.log(numbers / self.low) / math.log(self.high / self.low)
        else:
            placed = (numbers - self.low) / (self.high - self.low)
        return placed.clip(0.0, 1.0)

    def from_unit(self, units: Float64) -> Float64:
        """Numbers at positions on the scale, the inverse of `unit`."""
        if self.scale == "log":
            numbers: Float64 = self.low * np.exp(units * math.log(self.high / self.low))
        else:
            numbers = self.low + units * (self.high - self.low)
        return numbers.clip(self.low, self.high)

    def stretch(self, actions: Actions) -> Float64:
        """The slope of `unit`: a density over positions times this is one over numbers, float64[N]."""
        numbers = np.asarray(actions, np.float64)
        if self.scale == "log":
            return 1 / (numbers * math.log(self.high / self.low))
        return np.full(numbers.shape, 1 / (self.high - self.low))

    def embed(self, actions: Actions) -> Float32:
        """Legendre polynomials of degree 1 to 4 of the position on the scale, float32[N, 4]."""
        z = 2 * self.unit(actions) - 1
        return np.polynomial.legendre.legvander(z, 4)[..., 1:].astype(np.float32)

    def restrict(self, eligible: object) -> Interval:
        """An interval ``[from, to]`` within the bounds."""
        if isinstance(eligible, (str, bytes, Mapping)) or not isinstance(eligible, (Sequence, np.ndarray)):
            raise InvalidAction(f"eligible must be an interval [from, to] of {self.name}, got {shown(eligible)}")
        if len(eligible) != 2:
            raise InvalidAction(f"eligible must be an interval [from, to] of {self.name}, got {shown(eligible)}")
        low, high = map(self.parse, eligible)
        if not low < high:
            raise InvalidAction(f"eligible must be an interval [from, to] with from below to, got {shown(eligible)}")
        return Interval((low, high))

    def allow(self, eligible: Sequence[Sequence[float] | None]) -> Float64 | None:
        """The interval of each row, float64[N, 2]; None allows everything."""
        if not any(each is not None for each in eligible):
            return None
        every = (self.low, self.high)
        return np.array([every if each is None else self.restrict(each).value for each in eligible], np.float64)

    def head(self) -> HistogramHead:
        """A score for each bin."""
        return HistogramHead(tuple(self.edges.tolist()))

    @property
    def _what(self) -> str:
        return f"action {self.name!r}"

    def _bound(self, field: str, value: object) -> float:
        number = _number(value)
        if number is None:
            raise InvalidProblem(f"{self._what}: {field} must be a finite number, got {shown(value)}")
        return number


class Interval(msgspec.Struct, frozen=True):
    """The part of a continuous space that one decision allows.

    Attributes:
        value: Its smallest and its largest number.
    """

    value: tuple[float, float]

    @property
    def allowed(self) -> Float64:
        """The interval as float64[1, 2]."""
        return np.array([self.value])

    def permits(self, action: float) -> bool:
        """Whether the number is inside."""
        return self.value[0] <= action <= self.value[1]

    def first(self) -> float:
        """The middle of the interval."""
        return (self.value[0] + self.value[1]) / 2


def _number(value: object) -> float | None:
    """A finite number as a float; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
