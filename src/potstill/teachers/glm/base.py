"""Base of the generalised linear teachers: options, memory and posterior."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import ClassVar, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.problem import InvalidObservation, Observations, Problem, RewardKind
from potstill.teachers import memory as memories
from potstill.teachers.contract import EXACT, Bool, Exactness, Float32, NeedsFiniteActions, Parts
from potstill.teachers.glm import laplace
from potstill.teachers.glm.family import Family
from potstill.teachers.glm.laplace import Expansion, LaplacePosterior, Predictors
from potstill.teachers.linear import Float64, WeightedSums, nig
from potstill.teachers.memory import Memory, Weighting, Weights, weights
from potstill.teachers.probability_best import probability_best


class GlmState(NamedTuple):
    """Observations and posterior.

    Attributes:
        memory: The observations; empty if they are stored elsewhere and were read by `reread`.
        learnt: Number of observations behind the posterior, int64[].
        posterior: The posterior.
    """

    memory: Memory
    learnt: NDArray[np.int64]
    posterior: LaplacePosterior


class GeneralisedLinear(msgspec.Struct, NeedsFiniteActions, Weights, frozen=True, kw_only=True):
    """Options and methods of every generalised linear teacher.

    The posterior depends on all observations and not on how they are divided into updates and parts.

    Args:
        precision: Precision of the prior on coefficients before any observation; then it is learnt.
        window: Learn only from the latest `window` observations, for drifting rewards.
        weighting: Weighting of observations.
    """

    precision: float = 1.0
    window: int | None = None
    weighting: Weighting = "equal"

    family: ClassVar[Family]

    def __post_init__(self) -> None:
        if not 0 < self.precision < np.inf:
            self._refuse("precision", "a positive number")
        if self.window is not None and self.window < 1:
            self._refuse("window", "1 or more, or None")

    def _refuse(self, field: str, expected: str) -> None:
        raise InvalidOption(f"{type(self).__name__}: {field} must be {expected}, got {getattr(self, field)!r}")

    @property
    def exactness(self) -> Exactness:
        """Exact given the Laplace approximation of the posterior, by quadrature."""
        return EXACT

    @property
    def reward_kinds(self) -> tuple[RewardKind, ...]:
        """Kinds of reward that it learns from."""
        return self.family.kinds

    @property
    def passes(self) -> int:
        """The most passes over the observations; 6 to 9 are usual. 0 with a window, which is kept in memory."""
        return 1 + laplace.EVALUATIONS if self.window is None else 0

    def init(self, problem: Problem) -> GlmState:
        """The prior."""
        prior = laplace.prior(self.count(problem.actions), problem.width + 1, self.precision)
        return GlmState(memories.empty(problem.width), np.array(0), prior)

    def update(self, state: GlmState, observations: Observations, key: Key) -> GlmState:  # noqa: ARG002
        """The posterior after more observations."""
        if not len(observations):
            return state
        check_rewards(self.family, observations.rewards, type(self).__name__)
        self._check_memory(state)
        memory = state.memory.append(observations, self.window, weights(observations, self.weighting))
        data = memory.normalised()
        sums = nig.sums(
            data.contexts, data.actions, data.rewards, data.weights, len(state.posterior.mean), intercept=True
        )

        def expand_all(coefficients: Float64) -> Expansion:
            return laplace.expand_in_chunks(_regressors, data, self.family, coefficients)

        posterior = laplace.fit(sums, self.family, expand_all)
        return GlmState(memory, np.array(len(memory.actions)), posterior)

    def reread(self, state: GlmState, parts: Parts, key: Key) -> GlmState:  # noqa: ARG002
        """The posterior after all observations, without keeping them."""
        total = reduce(add, parts.each(_part_sums, self, len(state.posterior.mean)))
        if not total.rows:
            return state
        scale = float(total.rows / total.sums.n.sum())

        def expand_all(coefficients: Float64) -> Expansion:
            return reduce(add, parts.each(_part_expansion, self, coefficients)).scaled(scale)

        posterior = laplace.fit(total.normalised(), self.family, expand_all)
        nothing = memories.empty(state.memory.contexts.shape[1])
        return GlmState(nothing, total.rows.astype(np.int64), posterior)

    def propensities(
        self,
        state: GlmState,
        contexts: Float32,
        key: Key,  # noqa: ARG002
        eligible: Bool | None = None,
    ) -> Float32:
        """The probability that each action is best, float32[N, K]."""
        mean, scale = self.predictors(state, contexts)
        return probability_best(mean, scale, np.full(mean.shape[1], np.inf), eligible)

    def sample_actions(self, state: GlmState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """Thompson-sampled actions, int64[N, n]."""
        return laplace.sample_best(self.predictors(state, contexts), n, key)

    def mean_rewards(self, state: GlmState, contexts: Float32) -> Float64:
        """The posterior mean reward of each action, float64[N, K]."""
        return self.family.expected(*self.predictors(state, contexts))

    def predictors(self, state: GlmState, contexts: Float32) -> Predictors:
        """The posterior of each action's linear predictor in each context."""
        return laplace.predictors(state.posterior, nig.with_intercept(contexts))

    def _check_memory(self, state: GlmState) -> None:
        """Refuse to update a state that `reread` made: it holds no observations, and an update would forget them."""
        if len(state.memory.actions) != state.learnt:
            raise InvalidOption(
                f"{type(self).__name__}: this state was learnt from {int(state.learnt):,} observations that it does "
                "not hold; pass all of them again, with reread (in Still.update: earlier=)"
            )


def check_rewards(family: Family, rewards: Float64, teacher: str) -> None:
    """Refuse rewards that a family cannot have; `InvalidObservation`."""
    unfit = np.flatnonzero(~family.fits(rewards))
    if unfit.size:
        raise InvalidObservation(
            f"{teacher}: rewards must be {family.must_be}, got {rewards[unfit[0]]:g} in row {unfit[0]}; "
            "for other rewards use auto-ts or empirical-linear-ts"
        )


def _regressors(rows: Memory) -> Float64:
    return nig.with_intercept(rows.contexts)


def _part_sums(
    number: int,  # noqa: ARG001
    observations: Observations,
    teacher: GeneralisedLinear,
    k: int,
) -> WeightedSums:
    """Sums of a part, with its weights as they are."""
    check_rewards(teacher.family, observations.rewards, type(teacher).__name__)
    contexts, actions, rewards, own = _part(observations, teacher)
    sums = nig.sums(contexts, actions, rewards, own, k, intercept=True)
    return WeightedSums(sums, np.array(float(len(observations))))


def _part_expansion(
    number: int,  # noqa: ARG001
    observations: Observations,
    teacher: GeneralisedLinear,
    coefficients: Float64,
) -> Expansion:
    return laplace.expand_in_chunks(_regressors, _part(observations, teacher), teacher.family, coefficients)


def _part(observations: Observations, teacher: GeneralisedLinear) -> Memory:
    own = weights(observations, teacher.weighting)
    return Memory(observations.contexts, observations.actions, observations.rewards, own)
