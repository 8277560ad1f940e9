"""Gaussian processes over (context, action)."""

from potstill.teachers.gp.deep_kernel_ts import DeepKernelTS
from potstill.teachers.gp.gp_ts import GaussianProcessTS
from potstill.teachers.gp.gp_ucb import GaussianProcessUCB
from potstill.teachers.gp.max_variance import Design, max_variance_design
from potstill.teachers.gp.pairs import Points

__all__ = ["DeepKernelTS", "Design", "GaussianProcessTS", "GaussianProcessUCB", "Points", "max_variance_design"]
