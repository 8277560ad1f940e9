"""A number from an interval, decided by a histogram. ``learn``, ``ope`` and ``lake`` are loaded only offline.

`kernel_estimators` holds off-policy estimators on plain arrays; it is imported on first use.
"""

from typing import TYPE_CHECKING

from potstill.lazy import lazy
from potstill.spaces.continuous.head import HistogramDistribution, HistogramHead
from potstill.spaces.continuous.space import Continuous

if TYPE_CHECKING:
    from potstill.spaces.continuous import kernel_estimators

__all__ = ["Continuous", "HistogramDistribution", "HistogramHead", "kernel_estimators"]

__getattr__ = lazy(__name__, {}, ("kernel_estimators",))
