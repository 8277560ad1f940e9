"""Teachers of one number from an interval."""

from potstill.teachers.continuous import maximiser
from potstill.teachers.continuous.basis import Axis, NeedsInterval
from potstill.teachers.continuous.gp_ts import ContinuousGaussianProcessTS
from potstill.teachers.continuous.linear_ts import ContinuousLinearTS
from potstill.teachers.continuous.neural_linear_ts import ContinuousNeuralLinearTS

__all__ = [
    "Axis",
    "ContinuousGaussianProcessTS",
    "ContinuousLinearTS",
    "ContinuousNeuralLinearTS",
    "NeedsInterval",
    "maximiser",
]
