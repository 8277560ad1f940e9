"""Program-TS on an interval: a user-defined reward model of a number, written as a NumPyro program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.problem import Problem
from potstill.teachers import memory as memories
from potstill.teachers.continuous import Axis, NeedsInterval, maximiser
from potstill.teachers.contract import Float32, Float64
from potstill.teachers.memory import Memory
from potstill.teachers.program.program_ts import SHARED_BY, ProgramTS, filled, inference_module

#: Points of the grid on which a draw is maximised, before the top of a parabola.
_POINTS = 129
#: Mean rewards that are held at once: 64 MB.
_NUMBERS = 1 << 24
#: Rewards and outcomes are as the program states them: not standardised.
_UNIT = np.array([0.0, 1.0])


class ContinuousProgramState(NamedTuple):
    """Observations and posterior draws.

    Attributes:
        axis: The action space.
        memory: The observations.
        draws: As in `ProgramState`.
        diverged: As in `ProgramState`.
    """

    axis: Axis
    memory: Memory
    draws: tuple[NDArray[Any], ...]
    diverged: NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class ContinuousProgramTS(NeedsInterval, ProgramTS):
    """A user-defined reward model of a number, such as a price: latent parameters with priors, and a mean reward.

    >>> def program(contexts, actions, rewards=None):           # float32[N, d], float32[N], float32[N] or None
    ...     taste = numpyro.sample("taste", dist.Normal(0, 1))
    ...     mean = actions * jax.nn.sigmoid(taste + contexts[:, 0] - actions)
    ...     numpyro.sample("reward", dist.Normal(mean, 0.5), obs=rewards)
    ...     return mean
    >>> teacher = ContinuousProgramTS(program)

    Actions are the numbers themselves. With an objective of the problem, the program models the outcome. A Thompson
    action maximises the mean reward under one posterior draw over the interval, on a grid and then by a parabola.
    Options are those of `ProgramTS`.
    """

    numbers: ClassVar[bool] = True

    def init(self, problem: Problem) -> ContinuousProgramState:
        """Prior draws; checks what the program registers and returns."""
        axis, draws = self.axis(problem), self.prior_draws(problem.width)
        return ContinuousProgramState(axis, memories.empty(problem.width), draws, np.array(0.0))

    def propensities(  # type: ignore[override]  # no eligible actions: they are an interval
        self, state: ContinuousProgramState, contexts: Float32, key: Key
    ) -> Float32:
        """The probability that the best action is in each bin, float32[N, bins]: shares of one set of draws."""
        return maximiser.labels(state.axis, self._maximisers(state, contexts, key))

    def sample_actions(  # type: ignore[override]
        self, state: ContinuousProgramState, contexts: Float32, n: int, key: Key
    ) -> Float64:
        """The best action under each of n random posterior draws, float64[N, n]."""
        rng = key.child("draws").generator()
        drawn = (
            np.take_along_axis(units, rng.integers(units.shape[1], size=(len(units), n)), axis=1)
            for units in self._maximisers(state, contexts, key)
        )
        return maximiser.actions(state.axis, drawn, n)

    def mean_rewards(  # type: ignore[override]
        self, state: ContinuousProgramState, contexts: Float32
    ) -> Float64:
        """The mean reward at the middle of each bin over the posterior draws, float64[N, bins]."""
        middles, draws = state.axis.space.middles.astype(np.float32), self.posterior(state)
        step = 1 << (_NUMBERS // len(middles)).bit_length() - 1
        parts = [
            inference_module().mean_curve(self.program, draws, rows, middles) for _, rows in filled(contexts, step)
        ]
        means = np.concatenate([np.zeros((0, len(middles))), *parts])[: len(contexts)]
        return state.axis.maximised(means.astype(np.float64))

    def _maximisers(self, state: ContinuousProgramState, contexts: Float32, key: Key) -> Iterator[Float64]:
        """Positions of the maximisers under one set of draws, float64[C, draws] for chunks of C contexts."""
        grid = state.axis.space.from_unit(np.linspace(0, 1, _POINTS)).astype(np.float32)
        wanted, draws = maximiser.goal(state.axis, _UNIT, _POINTS), self.posterior(state)
        start = int(key.generator().integers(self.sets))
        most = max(_NUMBERS // (self.draws * _POINTS), 1)
        for first, rows in filled(contexts, min(1 << most.bit_length() - 1, SHARED_BY)):
            one = self.one_set(draws, start + first // SHARED_BY)
            outcomes = np.asarray(inference_module().curves(self.program, one, rows, grid))[:, : len(contexts) - first]
            self.check_finite((~np.isfinite(outcomes).all(axis=2)).sum(axis=0), first)
            best = maximiser.tops(maximiser.reached(outcomes.reshape(-1, _POINTS), wanted))
            yield best.reshape(self.draws, -1).T
