"""Problems whose reward function is drawn from a teacher's own prior, once for each trial.

The paper's theory bounds Bayes regret: the mean of regret over such problems. A teacher that has this prior knows the
posterior exactly, and all that is left to chance are the draw, the contexts and the noise.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.lab.problems.environment import Columns, Float32, Float64
from potstill.problem import Discrete, Numeric, Problem
from potstill.teachers import GaussianProcessTS, LinearTS
from potstill.teachers.gp import Points

#: GP-TS with a prior that no observation changes: hyperparameters as they are, rewards in their own unit.
FIXED_GP = GaussianProcessTS(fit_steps=0, relevance=False, standardise=False)


class _Drawn(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What both problems share: numeric features in [0, 1], and normal noise."""

    width: int
    actions: int
    seed: int

    @cached_property
    def problem(self) -> Problem:
        """The problem."""
        features = tuple(Numeric(f"x{i}", low=0, high=1) for i in range(self.width))
        return Problem(name="prior", context=features, actions=Discrete([f"a{i}" for i in range(self.actions)]))

    def drawn(self, key: Key) -> Any:
        """Another draw of the reward function."""
        return msgspec.structs.replace(self, seed=key.child("prior").integer())

    def encode(self, contexts: Columns) -> Float32:
        """Contexts, float32[N, width]."""
        return self.problem.encode_many({feature.name: contexts[feature.name] for feature in self.problem.context})

    def _columns(self, points: Float64) -> Columns:
        return {f"x{i}": column for i, column in enumerate(points.T)}

    @property
    def _rng(self) -> np.random.Generator:
        return Key(self.seed).child("rewards").generator()


class LinearPrior(_Drawn, frozen=True, kw_only=True, dict=True):
    """Linear rewards: θ and the noise variance of each action are drawn from the prior of Linear-TS.

    Args:
        teacher: Linear-TS with the prior.
        width: Number of features, uniform in [0, 1].
        actions: Number of actions.
        seed: Decides the draw.
    """

    teacher: LinearTS = LinearTS()
    width: int = 5
    actions: int = 5
    seed: int = 0

    @cached_property
    def parameters(self) -> tuple[Float64, Float64]:
        """θ of each action, float64[K, width + 1] with the intercept last, and its noise variance, float64[K]."""
        rng, prior = self._rng, self.teacher.init(self.problem).posterior
        variance = prior.beta / rng.gamma(prior.alpha)
        unit = rng.standard_normal(prior.mean.shape)
        apart = np.stack([np.linalg.solve(root.T, z) for root, z in zip(prior.root, unit, strict=True)])
        theta: Float64 = prior.mean + np.sqrt(variance)[:, None] * apart
        return theta, variance

    def contexts(self, n: int, rng: np.random.Generator) -> Columns:
        """Uniform contexts."""
        return self._columns(rng.random((n, self.width)))

    def means(self, contexts: Columns) -> Float64:
        """Expected reward of each action, float64[N, K]."""
        theta, _ = self.parameters
        means: Float64 = self.encode(contexts).astype(np.float64) @ theta[:, :-1].T + theta[:, -1]
        return means

    def rewards(self, contexts: Columns, actions: NDArray[np.integer[Any]], rng: np.random.Generator) -> Float64:
        """Means of the actions taken, with normal noise, float64[N]."""
        taken = np.take_along_axis(self.means(contexts), actions[:, None], axis=1)[:, 0]
        rewards: Float64 = taken + np.sqrt(self.parameters[1][actions]) * rng.standard_normal(len(actions))
        return rewards


class GaussianProcessPrior(_Drawn, frozen=True, kw_only=True, dict=True):
    """Rewards are a sample path of a Gaussian process over contexts and actions.

    There are finitely many contexts, so that the path can be drawn at all points.

    Args:
        teacher: GP-TS with the prior: its hyperparameters must be fixed and its rewards not standardised.
        width: Number of features.
        actions: Number of actions.
        places: Number of contexts, spread uniformly at random over [0, 1]^width; the same in all draws.
        seed: Decides the draw.
    """

    teacher: GaussianProcessTS = FIXED_GP
    width: int = 2
    actions: int = 5
    places: int = 100
    seed: int = 0

    @cached_property
    def grid(self) -> Float64:
        """All contexts, float64[places, width]."""
        return Key(0).child("places").generator().random((self.places, self.width)).astype(np.float32).astype(float)

    @cached_property
    def path(self) -> Float64:
        """Expected rewards at all contexts, float64[places, K]."""
        model = self.teacher.model(self.teacher.init(self.problem))
        contexts = np.repeat(self.encode(self._columns(self.grid)), self.actions, axis=0)
        points = Points(contexts, np.tile(np.arange(self.actions, dtype=np.int32), self.places))
        covariance = np.array(model.covariance(points, points))
        covariance[np.diag_indices_from(covariance)] += 1e-9 * covariance.max()
        values: Float64 = np.linalg.cholesky(covariance) @ self._rng.standard_normal(len(covariance))
        return values.reshape(self.places, self.actions)

    @property
    def noise(self) -> float:
        """Standard deviation of the rewards around their means."""
        return float(np.sqrt(self.teacher.model(self.teacher.init(self.problem)).noise))

    def contexts(self, n: int, rng: np.random.Generator) -> Columns:
        """Contexts with their positions in the grid."""
        at = rng.integers(self.places, size=n)
        return {**self._columns(self.grid[at]), "at": at}

    def means(self, contexts: Columns) -> Float64:
        """Expected reward of each action, float64[N, K]."""
        found: Float64 = self.path[contexts["at"]]
        return found

    def rewards(self, contexts: Columns, actions: NDArray[np.integer[Any]], rng: np.random.Generator) -> Float64:
        """Means of the actions taken, with normal noise, float64[N]."""
        taken: Float64 = self.path[contexts["at"], actions]
        return taken + self.noise * rng.standard_normal(len(actions))
