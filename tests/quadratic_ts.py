"""A teacher for `IntegerRange`: the reward is quadratic in the action, with coefficients linear in the context.

It only samples actions, without propensities, as teachers of infinite spaces do.
"""

from typing import NamedTuple

import msgspec
import numpy as np

from potstill.teachers import Exactness


class QuadraticState(NamedTuple):
    precision: np.ndarray
    weighted: np.ndarray
    ends: np.ndarray


class QuadraticTS(msgspec.Struct, frozen=True, tag_field="type", tag="quadratic-ts"):
    noise: float = 0.3

    def supports(self, space):
        return None if type(space).__name__ == "IntegerRange" else "it needs a range of whole numbers"

    @property
    def exactness(self):
        return Exactness("sampled", 64, 0.0625)

    def init(self, problem):
        width, space = 3 * (problem.width + 1), problem.actions
        return QuadraticState(np.eye(width), np.zeros(width), np.array([space.low, space.high]))

    def update(self, state, observations, key):
        x = self._design(observations.contexts, observations.problem.actions.embed(observations.actions))
        precision = state.precision + x.T @ x / self.noise**2
        return state._replace(precision=precision, weighted=state.weighted + x.T @ observations.rewards / self.noise**2)

    def sample_actions(self, state, contexts, n, key):
        """Actions int64[N, n]; each maximises one posterior draw over the whole range."""
        every = np.arange(state.ends[0], state.ends[1] + 1)
        z = 2 * (every - every[0]) / (every[-1] - every[0]) - 1
        basis = np.stack([z, z**2], axis=1)
        root = np.linalg.cholesky(np.linalg.inv(state.precision))
        mean = np.linalg.solve(state.precision, state.weighted)
        drawn = mean + key.generator().standard_normal((len(contexts), n, len(mean))) @ root.T
        grid = np.stack([self._design(contexts, np.repeat(row[None], len(contexts), axis=0)) for row in basis], axis=1)
        return every[np.einsum("nkw,nsw->nsk", grid, drawn).argmax(axis=2)]

    def _design(self, contexts, features):
        x = np.column_stack([np.ones(len(contexts)), contexts])
        a = np.column_stack([np.ones(len(features)), features])
        return (x[:, :, None] * a[:, None, :]).reshape(len(x), -1)
