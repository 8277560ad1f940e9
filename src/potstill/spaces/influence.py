"""An estimate as a ratio of means, with the influence of each row; intervals of all estimators start from it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidOption
from potstill.spaces.contract import Float64


@dataclass(frozen=True, eq=False)
class Parts:
    """Parts of an estimate: value = mean(base) + mean(numerator) / mean(denominator).

    Attributes:
        base: Base term of each row, float64[N]; None for zeros.
        numerator: Numerator of each row, float64[N]; None for zeros.
        denominator: Denominator of each row, float64[N]; None for ones.
        largest: Largest weight that the estimator can give any row.
        parameter: Clipping level, threshold, shrinkage or bandwidth that was used, if there is one.
        weight: Weight of each row's reward in the numerator or the base, float64[N], at least 0; None if the estimate
            does not depend on the rewards of its own rows, or if that is not known.
    """

    base: Float64 | None = None
    numerator: Float64 | None = None
    denominator: Float64 | None = None
    largest: float = math.inf
    parameter: float | None = None
    weight: Float64 | None = None

    def __post_init__(self) -> None:
        if self.base is None and self.numerator is None:
            raise InvalidOption("parts must have a base or a numerator")

    def __len__(self) -> int:
        return len(self.influence)

    @cached_property
    def value(self) -> float:
        """The estimate; NaN if the log has no information about the target."""
        return _mean(self.base) + self._ratio

    @cached_property
    def influence(self) -> Float64:
        """The influence of each row by the delta method, float64[N]; their mean is the value."""
        if self.numerator is None:
            assert self.base is not None
            return self.base
        linear = self._linear(self.numerator)
        return linear if self.base is None else self.base + linear

    @cached_property
    def sensitivity(self) -> Float64 | None:
        """By how much the influence of each row rises with its reward, float64[N]; None if there is no weight."""
        if self.weight is None or self.denominator is None:
            return self.weight
        return self.weight / (_mean(self.denominator) or math.nan)

    def where(self, rows: NDArray[np.bool_]) -> Parts:
        """The parts of some rows, by mask, under the same parameter."""
        base, numerator, denominator, weight = (
            None if part is None else part[rows] for part in (self.base, self.numerator, self.denominator, self.weight)
        )
        return replace(self, base=base, numerator=numerator, denominator=denominator, weight=weight)

    def _linear(self, numerator: Float64) -> Float64:
        """The ratio as a mean over rows: exact without a denominator, to first order with one."""
        if self.denominator is None:
            return numerator
        scale = _mean(self.denominator)
        return self._ratio + (numerator - self._ratio * self.denominator) / (scale or math.nan)

    @cached_property
    def _ratio(self) -> float:
        scale = 1.0 if self.denominator is None else _mean(self.denominator)
        return _mean(self.numerator) / scale if scale else math.nan


def _mean(part: Float64 | None) -> float:
    return 0.0 if part is None else float(part.mean())
