"""GP-TS on an interval: a Gaussian process over contexts and actions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers.continuous import maximiser
from potstill.teachers.continuous.basis import Axis, NeedsInterval
from potstill.teachers.contract import Float32, Float64
from potstill.teachers.gp import GaussianProcessTS, kernels, regression
from potstill.teachers.joint_normal import Joint, cholesky_root, draws
from potstill.teachers.memory import Memory, weights

#: Positions on the scale that observed actions are rounded to: finer than any bin that is worth having.
_POSITIONS = 1025
#: Numbers per chunk of contexts, for covariances and draws: 32 MB.
_CHUNK = 4_000_000


class ContinuousGPState(NamedTuple):
    """State of the Gaussian process, and the interval.

    Attributes:
        features: Positions on the scale, float64[1025, 1].
        memory: The observations, with actions rounded to these positions.
        logs: As in `GaussianProcessState`.
        relevance: As in `GaussianProcessState`.
        unit: As in `GaussianProcessState`.
        posterior: As in `GaussianProcessState`.
        axis: The action space.
    """

    features: Float64
    memory: Memory
    logs: Float64
    relevance: Float64
    unit: Float64
    posterior: regression.Posterior
    axis: Axis


class ContinuousGaussianProcessTS(
    NeedsInterval, GaussianProcessTS, frozen=True, kw_only=True, tag_field="type", tag="continuous-gp-ts"
):
    """Reward = f(context, action) + noise, with a Gaussian process prior on f. For little data and few columns.

    Options are those of `GaussianProcessTS`; `action_features` does not apply. Draws are joint over a grid of actions
    in each context. Beyond `exact_limit` observations, inducing points approximate them.

    Args:
        points: Number of grid points on the interval, on which draws are maximised.
    """

    kernel: kernels.Kernel = (
        kernels.Matern("context") + kernels.Matern("action") + kernels.Matern("context") * kernels.Matern("action")
    )
    draws: int = 512
    exact_limit: int = 500
    inducing: int = 300
    points: int = 33

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.points < 3:
            raise InvalidOption(f"{type(self).__name__}: points must be at least 3, got {self.points!r}")
        if self.action_features is not None:
            raise InvalidOption(f"{type(self).__name__}: action_features must be left out: the feature is the action")

    def init(self, problem: Problem) -> Any:
        """The prior."""
        return ContinuousGPState(*self._prior(problem, problem.width), self.axis(problem))

    def update(self, state: Any, observations: Observations, key: Key) -> Any:
        """The posterior after more observations."""
        if not len(observations):
            return state
        kept = state.memory.append(observations, self.window, weights(observations, self.weighting))
        units = state.axis.space.unit(observations.actions)
        new = np.rint(units * (_POSITIONS - 1)).astype(np.int32)
        actions = np.concatenate([state.memory.actions, new])[-len(kept.rewards) :]
        return self._learn(state, kept._replace(actions=actions), key)

    def propensities(  # type: ignore[override]  # no eligible actions: they are an interval
        self, state: Any, contexts: Float32, key: Key
    ) -> Float32:
        """The probability that the best action is in each bin, float32[N, bins]: shares of joint draws."""
        return maximiser.labels(state.axis, self._maximisers(state, contexts, self.draws, key))

    def sample_actions(self, state: Any, contexts: Float32, n: int, key: Key) -> Float64:  # type: ignore[override]
        """Thompson-sampled actions, float64[N, n]."""
        return maximiser.actions(state.axis, self._maximisers(state, contexts, n, key), n)

    def mean_rewards(self, state: Any, contexts: Float32) -> Float64:
        """The posterior mean reward at the middle of each bin, float64[N, bins]."""
        space, (offset, scale), model = state.axis.space, state.unit, self.model(state)
        at, fitted = space.unit(space.middles)[:, None], state.posterior
        step = max(1, _CHUNK // (len(at) * max(len(fitted.weights), 1)))
        parts = (contexts[start : start + step] for start in range(0, len(contexts), step))
        means = [model.with_points(part, fitted.points, at) @ fitted.weights for part in parts]
        return state.axis.maximised(offset + scale * np.concatenate([np.zeros((0, len(at))), *means]))  # type: ignore[no-any-return]

    def joint(self, state: Any, contexts: Float32) -> Joint:
        """The posterior of the mean rewards on the grid in each context, in standardised units."""
        at = np.linspace(0, 1, self.points)[:, None]
        return Joint(*regression.predict(self.model(state), state.posterior, contexts, at))

    def _maximisers(self, state: Any, contexts: Float32, n: int, key: Key) -> Iterator[Float64]:
        rng, most = key.generator(), max(n, self.points, len(state.posterior.weights))
        step, wanted = max(1, _CHUNK // (self.points * most)), maximiser.goal(state.axis, state.unit, self.points)
        for start in range(0, len(contexts), step):
            joint = self.joint(state, contexts[start : start + step])
            best = joint.mean.max(axis=1).astype(np.float32)[:, None, None]
            outcomes = draws(joint, n, rng, cholesky_root).swapaxes(1, 2) + (0.0 if wanted is None else best)
            yield maximiser.tops(maximiser.reached(outcomes.reshape(-1, self.points), wanted)).reshape(-1, n)

    def _features(self, problem: Problem) -> Float64:  # noqa: ARG002
        return np.linspace(0.0, 1.0, _POSITIONS)[:, None]
