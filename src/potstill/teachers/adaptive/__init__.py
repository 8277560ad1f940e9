"""Adaptive-TS: Bayesian regression with an empirical-Bayes prior."""

from potstill.teachers.adaptive.adaptive_ts import AdaptiveTS

__all__ = ["AdaptiveTS"]
