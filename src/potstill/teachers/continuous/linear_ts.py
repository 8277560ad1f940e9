"""Linear-TS on an interval: Bayesian linear regression on products of context columns and functions of the action."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers.continuous import evidence, maximiser, regression
from potstill.teachers.continuous.basis import Axis, cosines
from potstill.teachers.continuous.maximiser import SampledMaximisers
from potstill.teachers.continuous.regression import Regression
from potstill.teachers.contract import Float32, Float64
from potstill.teachers.linear import nig

#: Seed of the projections whose squares are regressors: all states of one width have the same.
_SQUARES = Key(23).child("squares")


class ContinuousLinearState(NamedTuple):
    """Sufficient statistics of all observations, and the posterior given them.

    Attributes:
        axis: The action space.
        sums: Sufficient statistics.
        regression: The posterior.
    """

    axis: Axis
    sums: nig.Sums
    regression: Regression


class ContinuousLinearTS(
    msgspec.Struct, SampledMaximisers, frozen=True, kw_only=True, tag_field="type", tag="continuous-linear-ts"
):
    """Reward = (1, x)ᵀ W B(a) + g(x) + noise, with smooth functions B of the action, and W uncertain.

    Prior scales and noise are learnt at every update by the marginal likelihood, so that there is nothing to tune, and
    rewards may have any unit. Labels are shares of the maximisers of posterior draws over the whole interval.

    The function g of the context alone is quadratic. It never moves the maximum. Without it, the squared best action of
    a context, to which the level of a convex cost belongs, would be taken for an effect of the action as soon as
    actions follow contexts, and the cost would seem flat. With an objective of the problem, W alone models the outcome.

    Args:
        size: Number of basis functions of the action, with the constant. More resolve narrower peaks.
        draws: Number of posterior draws per context for propensities.
        squares: Number of squares in g: all products of two columns if these are not more, else squares of random
            projections.
        discount: Factor on all earlier observations at each update. Below 1 it forgets, for drifting rewards.
    """

    size: int = 12
    draws: int = 512
    squares: int = 300
    discount: float = 1.0

    def __post_init__(self) -> None:
        self._check_sampling()
        if self.squares < 0:
            self._refuse("squares", "0 or more")
        if not 0 < self.discount <= 1:
            self._refuse("discount", "above 0 and at most 1")

    def init(self, problem: Problem) -> ContinuousLinearState:
        """The prior."""
        nothing = Observations.none(problem)
        axis, total = self.axis(problem), self.summarise(nothing)
        first = evidence.start(problem.width, total.gram.shape[1] - self.size * (problem.width + 1))
        return ContinuousLinearState(axis, total, regression.fit(total, self.size, first))

    def update(
        self,
        state: ContinuousLinearState,
        observations: Observations,
        key: Key,  # noqa: ARG002
    ) -> ContinuousLinearState:
        """The posterior after more observations."""
        return self.absorb(state, self.summarise(observations))

    def summarise(self, observations: Observations) -> nig.Sums:
        """Sufficient statistics of some observations."""
        basis = cosines(self.units(observations.problem.actions, observations.actions), self.size)
        x, weights = observations.contexts, np.ones(len(observations))
        others = squares(x, self._most(observations.problem.objective is not None))
        return regression.sums(x, others, basis, observations.rewards, weights)

    def absorb(self, state: ContinuousLinearState, stats: nig.Sums) -> ContinuousLinearState:
        """The posterior after the observations behind `stats`; without any, the same state."""
        if not stats.n.sum():
            return state
        total = state.sums.scaled(self.discount) + stats
        return state._replace(sums=total, regression=regression.fit(total, self.size, state.regression.scales))

    def propensities(self, state: ContinuousLinearState, contexts: Float32, key: Key) -> Float32:
        """The probability that the best action is in each bin, float32[N, bins]: shares of draws."""
        return maximiser.labels(state.axis, self._maximisers(state, contexts, self.draws, key))

    def sample_actions(self, state: ContinuousLinearState, contexts: Float32, n: int, key: Key) -> Float64:
        """Thompson-sampled actions, float64[N, n]."""
        return maximiser.actions(state.axis, self._maximisers(state, contexts, n, key), n)

    def mean_rewards(self, state: ContinuousLinearState, contexts: Float32) -> Float64:
        """The posterior mean reward at the middle of each bin, float64[N, bins]."""
        others = squares(contexts, self._most(bool(state.axis.objective.size)))
        return regression.mean_rewards(state.regression, contexts, others, state.axis, self.size)

    def _maximisers(self, state: ContinuousLinearState, contexts: Float32, n: int, key: Key) -> Iterator[Float64]:
        given = regression.coefficients(state.regression, contexts, self.size)
        return maximiser.of_contexts(given, state.axis, state.regression.unit, n, key)

    def _most(self, objective: bool) -> int:
        """Number of squares. With an objective g would move the maximum, and would have to be uncertain too."""
        return 0 if objective else self.squares


def squares(contexts: Float32, most: int) -> NDArray[np.float64]:
    """Quadratic functions of contexts, float64[N, R], of which the span of all is approximated if there are more."""
    x = contexts.astype(np.float64) - 0.5  # columns are in [0, 1]
    d = x.shape[1]
    if d * (d + 1) // 2 <= most:
        first, second = np.triu_indices(d)
        return x[:, first] * x[:, second]
    projections = _SQUARES.generator().standard_normal((d, most)) / np.sqrt(d)
    return np.asarray((x @ projections) ** 2)
