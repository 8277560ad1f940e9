"""One Bayesian regression for all items of a catalogue, with an effect of each item."""

from potstill.teachers.catalog.linear_ts import CatalogLinearTS

__all__ = ["CatalogLinearTS"]
