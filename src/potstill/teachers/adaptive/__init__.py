"""Adaptive-TS: a regression that learns its own prior."""

from potstill.teachers.adaptive.adaptive_ts import AdaptiveTS

__all__ = ["AdaptiveTS"]
