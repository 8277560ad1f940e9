"""Linear-TS: a Bayesian linear regression for each action, in closed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.spaces import finite
from potstill.teachers.contract import EXACT, LIKE, Bool, Exactness, Float32, NeedsFiniteActions
from potstill.teachers.linear import nig
from potstill.teachers.linear.prior import Coefficients, decoded, resolve
from potstill.teachers.memory import Weighting, Weights, weights
from potstill.teachers.probability_best import probability_best


class LinearState(NamedTuple):
    """Sufficient statistics of all observations, and the posterior given them.

    Attributes:
        sums: Sufficient statistics.
        posterior: The posterior.
        prior: Means and precisions of an informative prior; empty if the teacher has none.
    """

    sums: nig.Sums | nig.WeightedSums
    posterior: nig.Posterior
    prior: nig.Prior | tuple[()] = ()


class LinearTS(
    msgspec.Struct, NeedsFiniteActions, Weights, frozen=True, kw_only=True, tag_field="type", tag="linear-ts"
):
    """Reward = xᵀθ + noise, independently per action, with the conjugate prior NIG(0, precision·I, alpha, beta).

    The defaults are the paper's. Propensities are exact: given a context, the rewards of the actions are
    independent Student-t variables.

    Args:
        precision: Precision of the prior on θ, relative to the noise. Small values are vague.
        alpha: Shape of the prior on the noise variance.
        beta: Scale of the prior on the noise variance.
        discount: Factor on all earlier observations at each update. Below 1 it forgets, for drifting rewards.
        weighting: Weighting of observations.
        prior: Mean and precision of coefficients, by action and then by column of the context or ``intercept``, such
            as ``{"480p": {"intercept": Coefficient(mean=0.6, precision=20)}}``. Others have mean 0 and `precision`.
            With it, the first policy imitates the prior instead of being uniform.
    """

    precision: float = 0.25
    alpha: float = 6.0
    beta: float = 6.0
    discount: float = 1.0
    weighting: Weighting = "equal"
    # Unset, it is left out of configurations, so that states and lineages without a prior are what they were.
    prior: Coefficients | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if self.prior is not msgspec.UNSET:
            msgspec.structs.force_setattr(self, "prior", decoded(self.prior) or msgspec.UNSET)
        for field in ("precision", "alpha", "beta"):
            value = getattr(self, field)
            if not 0 < value < np.inf:
                raise InvalidOption(f"{type(self).__name__}: {field} must be a positive number, got {value!r}")
        if not 0 < self.discount <= 1:
            raise InvalidOption(f"{type(self).__name__}: discount must be above 0 and at most 1, got {self.discount!r}")

    @property
    def exactness(self) -> Exactness:
        """Exact, by quadrature."""
        return EXACT

    @property
    def informed(self) -> bool:
        """Whether it has an informative prior."""
        return self.prior is not msgspec.UNSET

    def init(self, problem: Problem) -> LinearState:
        """The prior."""
        prior = () if self.prior is msgspec.UNSET else resolve(self.prior, problem, self.precision)
        return self._state(self.summarise(Observations.none(problem)), prior)

    def update(self, state: LinearState, observations: Observations, key: Key) -> LinearState:  # noqa: ARG002
        """The posterior after more observations."""
        return self.absorb(state, self.summarise(observations))

    def summarise(self, observations: Observations) -> nig.Sums | nig.WeightedSums:
        """Sufficient statistics of some observations."""
        sums = nig.sums(
            observations.contexts,
            observations.actions,
            observations.rewards,
            weights(observations, self.weighting),
            self.count(observations.problem.actions),
            intercept=True,
        )
        return sums if self.weighting == "equal" else nig.WeightedSums(sums, np.array(float(len(observations))))

    def absorb(self, state: LinearState, stats: nig.Sums | nig.WeightedSums) -> LinearState:
        """The posterior after the observations behind `stats`."""
        return self._state(state.sums.scaled(self.discount) + stats, state.prior)  # type: ignore[operator]

    def propensities(
        self,
        state: LinearState,
        contexts: Float32,
        key: Key,  # noqa: ARG002
        eligible: Bool | None = None,
    ) -> Float32:
        """The probability that each action is best, float32[N, K]."""
        return probability_best(*self.marginals(state, contexts), eligible)

    def with_actions(self, state: LinearState, before: Problem, after: Problem, like: Mapping[str, str]) -> LinearState:
        """The posterior for another list of actions: each keeps its own statistics."""
        if not isinstance(state.sums, nig.Sums):
            raise InvalidOption(
                f"{type(self).__name__}: weights of {self.weighting!r} are normalised over all observations, so that "
                "no action keeps its own; it learns from all observations again"
            )
        known, names = (finite(one.actions, "LinearTS").labels for one in (before, after))
        rows = [_source(name, known, like) for name in names]
        empty = self.summarise(Observations.none(after))
        total = nig.Sums(*(_picked(old, new, rows) for old, new in zip(state.sums, empty.normalised(), strict=True)))
        prior = () if self.prior is msgspec.UNSET else resolve(self.prior, after, self.precision)
        return self._state(total, prior)

    def sample_actions(self, state: LinearState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """Thompson-sampled actions, int64[N, n]."""
        return nig.sample_best(self.marginals(state, contexts), n, key)

    def marginals(self, state: LinearState, contexts: Float32) -> nig.Marginals:
        """The posterior of each action's mean reward in each context."""
        return nig.marginals(state.posterior, nig.with_intercept(contexts))

    def mean_rewards(self, state: LinearState, contexts: Float32) -> nig.Float64:
        """The posterior mean reward of each action, float64[N, K]."""
        return nig.with_intercept(contexts) @ state.posterior.mean.T

    def _state(self, total: nig.Sums | nig.WeightedSums, prior: nig.Prior | tuple[()] = ()) -> LinearState:
        sums = total.normalised()
        if isinstance(prior, nig.Prior):
            return LinearState(total, nig.posterior(prior.added_to(sums), 0.0, self.alpha, self.beta), prior)
        return LinearState(total, nig.posterior(sums, self.precision, self.alpha, self.beta))


def _source(name: str, known: Sequence[str], like: Mapping[str, str]) -> tuple[int, float] | None:
    """Whose statistics an action takes over, and with what weight; None if it starts at its prior."""
    if name in known:
        return known.index(name), 1.0
    other = like.get(name)
    return (known.index(other), LIKE) if other in known else None


def _picked(old: nig.Float64, new: nig.Float64, rows: Sequence[tuple[int, float] | None]) -> nig.Float64:
    """Statistics of each action: a row of `old` times a weight, or that of `new` where there is none."""
    found = new.copy()
    for at, row in enumerate(rows):
        if row is not None:
            found[at] = old[row[0]] if row[1] == 1.0 else row[1] * old[row[0]]
    return found


class DiagonalLinearTS(LinearTS, frozen=True, kw_only=True, tag_field="type", tag="diagonal-linear-ts"):
    """Linear-TS with a mean-field posterior: parameters are independent. Cheaper, with a worse posterior.

    A baseline, from the paper's appendix on complexity and Riquelme et al. (2018).
    """

    def _state(self, total: nig.Sums | nig.WeightedSums, prior: nig.Prior | tuple[()] = ()) -> LinearState:
        exact = super()._state(total, prior)
        return exact._replace(posterior=nig.diagonal(exact.posterior))
