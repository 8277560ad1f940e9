"""Adaptive-TS: a regression that learns its own prior."""
