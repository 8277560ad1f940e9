"""Gaussian processes over (context, action)."""

from potstill.teachers.gp import kernels, regression
from potstill.teachers.gp.deep_kernel_ts import DeepKernelTS
from potstill.teachers.gp.gp_ts import GaussianProcessState, GaussianProcessTS
from potstill.teachers.gp.gp_ucb import GaussianProcessUCB
from potstill.teachers.gp.max_variance import Design, max_variance_design
from potstill.teachers.gp.pairs import Points

__all__ = [
    "DeepKernelTS",
    "Design",
    "GaussianProcessState",
    "GaussianProcessTS",
    "GaussianProcessUCB",
    "Points",
    "kernels",
    "max_variance_design",
    "regression",
]
