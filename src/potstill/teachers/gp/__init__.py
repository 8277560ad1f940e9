"""Gaussian processes over (context, action)."""

from potstill.teachers.gp.gp_ts import GaussianProcessTS
from potstill.teachers.gp.max_variance import max_variance_design

__all__ = ["GaussianProcessTS", "max_variance_design"]
