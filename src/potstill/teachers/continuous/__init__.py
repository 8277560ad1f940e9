"""Teachers of one number from an interval."""

from potstill.teachers.continuous.linear_ts import ContinuousLinearTS

__all__ = ["ContinuousLinearTS"]
