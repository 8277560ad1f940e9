"""Forest-TS: Thompson sampling on bootstrapped regression trees."""

from potstill.teachers.forest.forest_ts import ForestTS

__all__ = ["ForestTS"]
