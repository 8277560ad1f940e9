"""Bayesian linear regression per action."""

from potstill.teachers.linear import nig
from potstill.teachers.linear.empirical import EmpiricalLinearTS
from potstill.teachers.linear.lin_ucb import LinUCB
from potstill.teachers.linear.linear_ts import DiagonalLinearTS, LinearTS
from potstill.teachers.linear.nig import Float64, Marginals, Posterior, Sums, WeightedSums
from potstill.teachers.linear.prior import Coefficient

__all__ = [
    "Coefficient",
    "DiagonalLinearTS",
    "EmpiricalLinearTS",
    "Float64",
    "LinUCB",
    "LinearTS",
    "Marginals",
    "Posterior",
    "Sums",
    "WeightedSums",
    "nig",
]
