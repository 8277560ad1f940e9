"""Summaries made from the lake. Needs Polars; what reads summaries does not."""

from potstill.summaries.build.columns import agrees, label_of, unit, value_of
from potstill.summaries.build.refresh import refresh_summaries

__all__ = ["agrees", "label_of", "refresh_summaries", "unit", "value_of"]
