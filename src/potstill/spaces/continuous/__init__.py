"""A number from an interval, decided by a histogram. ``learn``, ``ope`` and ``lake`` are loaded only offline."""

from potstill.spaces.continuous.head import HistogramDistribution, HistogramHead
from potstill.spaces.continuous.space import Continuous

__all__ = ["Continuous", "HistogramDistribution", "HistogramHead"]
