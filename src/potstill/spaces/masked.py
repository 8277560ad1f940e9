"""Imitation under masks: a label is P(best of the eligible actions), for a random set of eligible actions per row.

A label row is float32[K]: the probability of each eligible action, and -1 for the others, so that it states its mask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.special import entr, log_softmax

from potstill.errors import UnsupportedSpace, shown
from potstill.spaces.contract import ActionSpace, Bool, Divergences, FiniteSpace, Float32, Float64
from potstill.spaces.finite import FiniteDistribution
from potstill.spaces.finite_learning import RAREST, SUM_TOLERANCE, FiniteLearning
from potstill.spaces.registry import learning

#: Share of rows whose mask is all actions, beside those of random size: requests without `eligible` come too.
_ALL = 1 / 8
#: In place of the score of an action that is not eligible: its exponential is 0 beside any other.
_NEVER = -1e9


class MaskedLearning(FiniteLearning, frozen=True):
    """Labels hold their masks; the network takes these as inputs, and the softmax is over the eligible actions.

    Attributes:
        outputs: Number of actions.
        geometry: Distances between them; None if they have none.
        chosen: Whether each action is chosen; None if none is retired. Retired ones are never eligible.
    """

    masked: ClassVar[bool] = True

    def label(self, teacher: Any, state: Any, contexts: Float32, key: Any) -> Float32:
        """The teacher's propensities under a random mask of each row; equal contexts get different ones."""
        eligible = random_masks(len(contexts), self.outputs, key.child("masks"), self.chosen)
        return np.where(eligible, teacher.propensities(state, contexts, key, eligible), np.float32(-1))

    def check(self, labels: Float32) -> tuple[Bool, str]:
        """Rows that are not probabilities of eligible actions."""
        eligible = labels != -1
        wrong = np.any(~(labels >= 0) & eligible, axis=1)
        if wrong.any():
            return wrong, "be probabilities, or -1 for actions that are not eligible"
        total = np.where(eligible, labels, 0).sum(axis=1, dtype=np.float64)
        return np.abs(total - 1) > SUM_TOLERANCE, "sum to 1 over the eligible actions"

    def loss(self, outputs: jax.Array, labels: jax.Array) -> jax.Array:
        """The cross-entropy of each row."""
        eligible = labels >= 0
        scores = jax.nn.log_softmax(jnp.where(eligible, outputs, _NEVER))
        return -jnp.sum(jnp.where(eligible, labels * scores, 0.0), axis=1)

    def wasserstein(self, outputs: jax.Array, labels: jax.Array) -> jax.Array:
        """W₁ of each row as a share of the largest distance."""
        return super().wasserstein(jnp.where(labels >= 0, outputs, _NEVER), jnp.maximum(labels, 0.0))

    def start(self, labels: Float32) -> Float32:
        """The scores of the mean label of each action where it is eligible."""
        eligible = labels >= 0
        mean = np.where(eligible, labels, 0).sum(axis=0) / np.maximum(eligible.sum(axis=0), 1)
        scores: Float32 = np.log(np.maximum(mean, RAREST)).astype(np.float32)
        return scores

    def divergence(self, outputs: Float64, labels: Float32) -> Float64:
        """The cross-entropy minus the entropy of the label."""
        eligible = labels >= 0
        p = np.where(eligible, labels, 0).astype(np.float64)
        scores = log_softmax(np.where(eligible, outputs, _NEVER), axis=1)
        kl: Float64 = -(p * scores).sum(axis=1) - entr(p).sum(axis=1)
        return kl

    def divergences(self, labels: Float32, distribution: FiniteDistribution) -> Divergences:
        """Distance by the probabilities of all actions."""
        return super().divergences(np.maximum(labels, 0), distribution)


def masked_learning(space: ActionSpace) -> MaskedLearning:
    """Imitation under masks on a list of actions."""
    plain = learning(space)
    if not isinstance(space, FiniteSpace) or not isinstance(plain, FiniteLearning):
        raise UnsupportedSpace(
            f"a student of masks needs a list of actions, such as Discrete([...]), got {shown(space)}"
        )
    return MaskedLearning(plain.outputs, plain.geometry, plain.chosen)


def random_masks(rows: int, actions: int, key: Any, chosen: Sequence[bool] | None = None) -> Bool:
    """Random sets of eligible actions, bool[N, K]: two or more of those chosen, every size as often, and often all."""
    rng, places = key.generator(), _places(actions, chosen)
    count = len(places)
    drawn = rng.random((rows, count), dtype=np.float32) < rng.random((rows, 1), dtype=np.float32)
    # Two that are always eligible make the size uniform on 2 to K, and leave no row without a choice.
    first = rng.integers(count, size=rows)
    second = (first + 1 + rng.integers(count - 1, size=rows)) % count
    drawn[np.arange(rows), first] = drawn[np.arange(rows), second] = True
    drawn[rng.random(rows) < _ALL] = True
    return _placed(drawn, places, actions)


def masks_of_size(rows: int, actions: int, size: int, key: Any, chosen: Sequence[bool] | None = None) -> Bool:
    """Random sets of `size` eligible actions of those chosen, bool[N, K]."""
    places = _places(actions, chosen)
    order = key.generator().random((rows, len(places)), dtype=np.float32).argsort(axis=1)
    drawn = np.zeros((rows, len(places)), bool)
    np.put_along_axis(drawn, order[:, :size], values=True, axis=1)
    return _placed(drawn, places, actions)


def _places(actions: int, chosen: Sequence[bool] | None) -> NDArray[np.int64]:
    return np.arange(actions) if chosen is None else np.flatnonzero(chosen)


def _placed(drawn: Bool, places: NDArray[np.int64], actions: int) -> Bool:
    eligible = np.zeros((len(drawn), actions), bool)
    eligible[:, places] = drawn
    return eligible
