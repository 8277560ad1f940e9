"""The action basis: cosines of the position on the scale of a continuous space, and that space as arrays of a state.

The reward as a function of the action is Σ_j c_j·B_j(u), with u the position from 0 to 1 and B_0 constant. Cosines are
flat at the ends of their interval, so theirs is wider than [0, 1]: a reward may rise up to the end. The prior variance
of c_j falls with j, so that draws are smooth. This is the Hilbert-space approximation of a Gaussian process (Solin &
Särkkä 2020).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.errors import UnsupportedSpace, shown
from potstill.problem import Problem
from potstill.spaces import ActionSpace, Continuous
from potstill.teachers.contract import Float64

#: The cosines' interval is wider than [0, 1] by this share at either end.
_MARGIN = 0.15
#: The variance of the j-th coefficient is j to minus this power: rougher than Matérn-3/2, smoother than Matérn-1/2.
_FALL = 3.0


#: Positions at which a state holds the objective.
_POSITIONS = 1025


class Axis(NamedTuple):
    """A continuous space as arrays, so that a state can hold it.

    Attributes:
        ends: Smallest and largest action, float64[2].
        bins: Number of bins, int64[].
        log: Whether the scale is logarithmic, bool[].
        objective: Coefficient of the outcome and constant of the objective at even positions, float64[2, 1025];
            float64[2, 0] if rewards are maximised themselves.
    """

    ends: Float64
    bins: NDArray[np.int64]
    log: NDArray[np.bool_]
    objective: Float64

    @property
    def space(self) -> Continuous:
        """The space, without its name."""
        low, high = self.ends.tolist()
        return Continuous("action", low, high, "log" if self.log else "linear", int(self.bins))

    def goal(self, units: Float64) -> tuple[Float64, Float64] | None:
        """Coefficient of the outcome and constant of the objective at positions; None if there is no objective."""
        if not self.objective.size:
            return None
        at = np.linspace(0, 1, self.objective.shape[1])
        coefficient, constant = (np.interp(units, at, part) for part in self.objective)
        return coefficient, constant

    def maximised(self, outcomes: Float64) -> Float64:
        """The objective for outcomes at the middle of each bin, float64[N, bins]."""
        found = self.goal(self.space.unit(self.space.middles))
        return outcomes if found is None else found[0] * outcomes + found[1]


class NeedsInterval:
    """Mixin for teachers of one number from an interval."""

    def supports(self, space: ActionSpace) -> str | None:
        """None for a continuous space; otherwise the reason."""
        return None if isinstance(space, Continuous) else "it needs a continuous action, a number from an interval"

    def axis(self, problem: Problem) -> Axis:
        """The space and the objective of a problem as arrays."""
        space = self._space(problem.actions)
        ends, bins, log = np.array([space.low, space.high]), np.array(space.bins), np.array(space.scale == "log")
        actions = space.from_unit(np.linspace(0, 1, _POSITIONS))
        objective = np.zeros((2, 0)) if problem.objective is None else np.array(problem.objective.parts(actions))
        return Axis(ends, bins, log, objective)

    def units(self, space: ActionSpace, actions: NDArray[Any]) -> Float64:
        """Positions of actions on the scale of a space, from 0 to 1, float64[N]."""
        return self._space(space).unit(actions)

    def _space(self, space: ActionSpace) -> Continuous:
        if not isinstance(space, Continuous):
            raise UnsupportedSpace(f"{type(self).__name__} does not support {shown(space)}: {self.supports(space)}")
        return space


def cosines(units: Float64, size: int) -> Float64:
    """The basis at positions [...], float64[..., size]; the first function is the constant 1."""
    stretched = (units + _MARGIN) / (1 + 2 * _MARGIN)
    values: Float64 = np.cos(np.pi * stretched[..., None] * np.arange(size))
    values[..., 1:] *= np.sqrt(2)
    return values


def falls(size: int) -> Float64:
    """Prior variances of all coefficients but the constant's, relative to the first of them, float64[size - 1]."""
    return np.arange(1, size, dtype=np.float64) ** -_FALL
